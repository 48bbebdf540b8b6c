//! `process.Process`: programs of the sandbox, started, watched and fed over Connect. A client that leaves a
//! stream ends nothing: a process lives until it ends, is killed, or its start's own time is over.

mod awake;
mod end;
mod inlet;
mod launch;
mod messages;
mod outlets;
mod running;
mod table;
mod terminal;

use std::sync::Arc;

use axum::Router;
use futures_util::{Stream, StreamExt as _, stream};
use rustix::process::Signal;
use tokio::time::Instant;

pub(crate) use self::table::Processes;
use self::{
    messages::{
        Answer, Chosen, End, Event, Input, InputRequest, ListRequest, ListResponse, Nothing, ProcessInfo, SignalName,
        SignalRequest, StartRequest, StreamedInput, UpdateRequest,
    },
    outlets::{Heard, Refused},
    running::{Begun, Running},
};
use super::{
    Envd,
    rpc::{self, Call, Code, Error, Messages, keep_alive},
};

type Shared = Arc<Envd>;

/// It is kept as long as the process runs; the system bounds the rest.
const TAG_MAX: usize = 1024;
/// The longest start, in bytes. Arguments and environment take a quarter of the stack's 8 MiB at most (execve(2)).
const START: usize = 2 * 1024 * 1024;

pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/process.Process/Start", rpc::server_stream(START, start))
        .route("/process.Process/Connect", rpc::server_stream(rpc::SHORT, connect))
        .route("/process.Process/List", rpc::unary(rpc::SHORT, list))
        .route("/process.Process/Update", rpc::unary(rpc::SHORT, update))
        .route("/process.Process/SendInput", rpc::unary(rpc::INPUT, send_input))
        .route("/process.Process/StreamInput", rpc::client_stream(rpc::INPUT, stream_input))
        .route("/process.Process/CloseStdin", rpc::unary(rpc::SHORT, close_stdin))
        .route("/process.Process/SendSignal", rpc::unary(rpc::SHORT, send_signal))
}

async fn start(envd: Shared, call: Call, request: StartRequest) -> Result<impl Answers, Error> {
    let StartRequest { process, pty, tag, stdin } = request;
    let command = launch::command(&envd, &call, &process, pty.is_some())?;
    envd.processes.has_room()?;
    if tag.as_ref().is_some_and(|tag| tag.len() > TAG_MAX) {
        return Err(Error::new(Code::InvalidArgument, format!("a tag has {TAG_MAX} bytes at most")));
    }
    launch::tell_once_if_without_root(&envd);
    let wants_stdin = stdin.unwrap_or(true);
    let begun = Running::start(&envd.children, command, process, tag, pty, wants_stdin)
        .map_err(|error| Error::new(Code::InvalidArgument, format!("error starting process: {error}")))?;
    let Begun { running, source, heard, exit } = begun;
    let running = Arc::new(running);
    let pid = running.pid;
    envd.processes.add(running.clone());
    let time = call.deadline.map(|at| at.saturating_duration_since(Instant::now()));
    tokio::spawn(async move {
        let status = running.attend(&envd.children, source, exit, time).await;
        envd.processes.remove(pid);
        running.outlets.end(Event::End(End::of(status))).await;
    });
    Ok(answers(number(pid), heard, &call))
}

async fn connect(envd: Shared, call: Call, request: Chosen) -> Result<impl Answers, Error> {
    let running = envd.processes.find(&request.process)?;
    let heard = running.outlets.listen().map_err(|refused| match refused {
        Refused::Over => Processes::gone(&request.process),
        Refused::Full => {
            let why = format!("{} listen to this process already", outlets::LIMIT);
            Error::new(Code::ResourceExhausted, why)
        }
    })?;
    Ok(answers(number(running.pid), heard, &call))
}

/// What `Start` and `Connect` stream.
trait Answers: Stream<Item = Result<Answer, Error>> + Send + 'static {}
impl<S: Stream<Item = Result<Answer, Error>> + Send + 'static> Answers for S {}

fn answers(pid: u32, heard: Heard, call: &Call) -> impl Answers + use<> {
    let answer = |event| Answer { event };
    let first = stream::iter([Ok(Event::Start { pid })]);
    let rest = stream::unfold(heard, async |mut heard| Some((heard.next().await?, heard)));
    let all = first.chain(rest).map(move |event: Result<Event, Error>| event.map(answer));
    keep_alive(all, call.keepalive, move || Ok(answer(Event::Keepalive {})))
}

fn number(pid: rustix::process::Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

async fn list(envd: Shared, _: Call, _: ListRequest) -> Result<ListResponse, Error> {
    let info = |running: Arc<Running>| ProcessInfo {
        config: running.config.clone(),
        pid: number(running.pid),
        tag: running.tag.clone(),
    };
    Ok(ListResponse { processes: envd.processes.all().into_iter().map(info).collect() })
}

async fn update(envd: Shared, _: Call, request: UpdateRequest) -> Result<Nothing, Error> {
    let running = envd.processes.find(&request.process)?;
    if let Some(pty) = request.pty {
        running.input.resize(pty.size).map_err(|error| internal("resizing tty", &error))?;
    }
    Ok(Nothing {})
}

async fn send_input(envd: Shared, _: Call, request: InputRequest) -> Result<Nothing, Error> {
    let running = envd.processes.find(&request.process)?;
    feed(&running, &request.input).await?;
    Ok(Nothing {})
}

async fn stream_input(envd: Shared, _: Call, mut messages: Messages<StreamedInput>) -> Result<Nothing, Error> {
    let mut chosen = None;
    while let Some(message) = messages.next().await? {
        match message {
            StreamedInput::Start { process } => chosen = Some(envd.processes.find(&process)?),
            StreamedInput::Data { input } => {
                let missing = || Error::new(Code::InvalidArgument, "data before the start event");
                feed(chosen.as_ref().ok_or_else(missing)?, &input).await?;
            }
            StreamedInput::Keepalive {} => {}
        }
    }
    Ok(Nothing {})
}

async fn feed(running: &Running, input: &Input) -> Result<(), Error> {
    match input {
        Input::Stdin(data) => {
            running.input.write_stdin(&data.0).await.map_err(|error| internal("writing to stdin", &error))
        }
        Input::Pty(data) => running.input.write_pty(&data.0).await.map_err(|error| internal("writing to tty", &error)),
    }
}

async fn close_stdin(envd: Shared, _: Call, request: Chosen) -> Result<Nothing, Error> {
    let running = envd.processes.find(&request.process)?;
    running.input.close_stdin().await.map_err(|error| internal("closing stdin", &error))?;
    Ok(Nothing {})
}

async fn send_signal(envd: Shared, _: Call, request: SignalRequest) -> Result<Nothing, Error> {
    use messages::Signal as Wanted;
    let running = envd.processes.find(&request.process)?;
    let signal = match request.signal {
        Wanted::Name(SignalName::Kill) | Wanted::Number(9) => Signal::KILL,
        Wanted::Name(SignalName::Term) | Wanted::Number(15) => Signal::TERM,
        other => return Err(Error::new(Code::Unimplemented, format!("invalid signal: {other:?}"))),
    };
    match envd.children.signal(running.pid, signal) {
        Ok(true) => Ok(Nothing {}),
        Ok(false) => Err(Processes::gone(&request.process)),
        Err(error) => Err(internal("sending signal", &error.to_string())),
    }
}

fn internal(doing: &str, error: &str) -> Error {
    Error::new(Code::Internal, format!("error {doing}: {error}"))
}
