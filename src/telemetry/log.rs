//! Lines on stderr: text for people at a terminal, JSON for machines. Written by a thread of their own:
//! who reads the log may stall for as long as it likes, and traffic goes on; what does not fit into the
//! queue meanwhile is dropped and counted.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fs::File,
    io::{self, IsTerminal as _, Write},
    os::fd::AsFd as _,
    panic::PanicHookInfo,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use tracing_subscriber::{
    EnvFilter, Layer as _, Registry,
    filter::{LevelFilter, ParseError, Targets},
    fmt::{self, MakeWriter},
    layer::{Layered, SubscriberExt as _},
    reload,
    util::SubscriberInitExt as _,
};

/// How a line looks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Filter(#[from] ParseError),
    #[error("cannot write the log: {0}")]
    Writer(#[from] io::Error),
}

/// Bytes that may wait for the log's reader: a good second of a busy proxy's lines.
const QUEUE: usize = 8 << 20;
/// Lines that wait are written together, in about this many bytes.
const BATCH: usize = 64 << 10;
/// How long the end waits for lines to be written; a reader that stalls must not keep the process.
const LAST_LINES: Duration = Duration::from_secs(1);
/// A stderr that was made non-blocking by whoever shares it says "not now": ask again after this.
const NOT_NOW: Duration = Duration::from_millis(10);

/// What this program writes itself. Of all others nothing below `info` is logged, whatever the filter says:
/// libraries may print heads and bodies there, and with them tokens.
const OWN_TARGETS: [&str; 3] = ["client_proxy", "access", "wake"];

type Filter = Layered<Targets, EnvFilter, Registry>;

/// The running log's filter: the log is the process's own.
static FILTER: OnceLock<reload::Handle<Filter, Registry>> = OnceLock::new();

/// And so is this number.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines that nobody will read: the queue was full, or stderr took them not.
pub(crate) fn lines_dropped() -> u64 {
    DROPPED.load(Relaxed)
}

/// Starts logging for the whole process; a second call in one process changes nothing. No format: text on
/// a terminal, JSON otherwise. Keep what it returns to the end.
pub(crate) fn start(format: Option<Format>, filter: &str) -> Result<Log, StartError> {
    let (filter, handle) = reload::Layer::new(parse(filter)?);
    let format = format.unwrap_or(if io::stderr().is_terminal() { Format::Text } else { Format::Json });
    // A descriptor of our own: `Stderr` would hold the process-wide lock of stderr while it blocks.
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let (queue, log) = Queue::into(stderr, QUEUE)?;
    let lines = fmt::layer().with_writer(queue);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match format {
        Format::Json => registry.with(lines.json().flatten_event(true).with_current_span(false)).try_init(),
        Format::Text => registry.with(lines).try_init(),
    };
    if started.is_ok() {
        let _ = FILTER.set(handle);
        // The default hook writes to stderr itself, and would block whoever panics.
        std::panic::set_hook(Box::new(tell_of_panic));
    }
    Ok(log)
}

/// What is logged from now on. Where no log runs, the text is judged all the same.
pub(crate) fn set_filter(filter: &str) -> Result<(), ParseError> {
    let filter = parse(filter)?;
    if let Some(running) = FILTER.get() {
        // It fails only when there is no log any more.
        let _ = running.reload(filter);
    }
    Ok(())
}

fn parse(filter: &str) -> Result<Filter, ParseError> {
    let filter = EnvFilter::try_new(filter)?;
    let most = filter.max_level_hint().unwrap_or(LevelFilter::TRACE);
    let others = Targets::new().with_default(most.min(LevelFilter::INFO));
    let bounds = OWN_TARGETS.into_iter().fold(others, |bounds, own| bounds.with_target(own, most));
    Ok(filter.and_then(bounds))
}

fn tell_of_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    let location = panic.location().map(ToString::to_string);
    let words = panic.payload_as_str().unwrap_or("no words");
    tracing::error!(thread = thread.name(), location, backtrace, "panicked: {words}");
}

enum Message {
    Line(Box<[u8]>),
    /// All lines before it are written when it is answered.
    Flush(SyncSender<()>),
}

/// Where lines wait to be written.
struct Queue {
    lines: Sender<Message>,
    /// Bytes that wait, and how many may.
    waiting: Arc<AtomicUsize>,
    room: usize,
}

/// The running log. Dropped at the end, it waits a moment for what is still to be written.
#[must_use = "dropped, it waits for the lines so far"]
pub(crate) struct Log(Sender<Message>);

impl Queue {
    fn into(sink: impl Write + Send + 'static, room: usize) -> io::Result<(Self, Log)> {
        let (lines, queued) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let taken = waiting.clone();
        thread::Builder::new().name("log".into()).spawn(move || write_all(&queued, sink, &taken))?;
        Ok((Self { lines: lines.clone(), waiting, room }, Log(lines)))
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &Queue {
    /// Takes one whole line, as the layer hands them over. Never blocks, never fails.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.waiting.fetch_add(line.len(), Relaxed) + line.len() <= self.room {
            // It fails only if the log's thread is gone, and that ends with the last sender.
            let _ = self.lines.send(Message::Line(line.into()));
        } else {
            self.waiting.fetch_sub(line.len(), Relaxed);
            DROPPED.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.0.send(Message::Flush(done)).is_ok() {
            let _ = written.recv_timeout(LAST_LINES);
        }
    }
}

/// The log's thread.
fn write_all(queued: &Receiver<Message>, mut sink: impl Write, waiting: &AtomicUsize) {
    let mut batch = Vec::with_capacity(BATCH);
    while let Ok(first) = queued.recv() {
        let (mut lines, mut flushed) = (0, None);
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => {
                    batch.extend_from_slice(&line);
                    lines += 1;
                }
                Message::Flush(done) => flushed = Some(done),
            }
            next = if batch.len() < BATCH && flushed.is_none() { queued.try_recv().ok() } else { None };
        }
        if write_batch(&mut sink, &batch).is_err() {
            // Nobody is left to be told but the metrics.
            DROPPED.fetch_add(lines, Relaxed);
        }
        waiting.fetch_sub(batch.len(), Relaxed);
        batch.clear();
        if let Some(done) = flushed {
            let _ = done.try_send(());
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the log's own thread may sleep")]
fn write_batch(sink: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match sink.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(NOT_NOW),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, Read as _};

    use super::*;

    #[test]
    fn what_does_not_fit_is_dropped_and_the_rest_is_written_in_order() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let (queue, log) = Queue::into(writer, 1 << 20).expect("a thread");
        // More than pipe and queue hold together, and nobody reads.
        let before = lines_dropped();
        for number in 0..5000 {
            let line = format!("{number:01023}\n");
            assert_eq!((&queue).write(line.as_bytes()).expect("never fails"), 1024);
        }
        let dropped = lines_dropped() - before;
        assert!((3000..4000).contains(&dropped), "{dropped}");
        let read = thread::spawn(move || {
            let mut lines = Vec::new();
            reader.read_to_end(&mut lines).expect("read");
            lines
        });
        drop(log);
        drop(queue);
        let lines = read.join().expect("no panic");
        let numbers: Vec<u64> = lines.lines().map(|line| line.expect("text").parse().expect("a number")).collect();
        assert_eq!(numbers.len() as u64, 5000 - dropped);
        assert!(numbers.is_sorted());
    }
}
