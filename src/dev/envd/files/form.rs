//! Forms with files in them (RFC 7578), in bounded memory. The parser takes in all that is there before it looks at
//! any of it, and looks for the end of a part's head until there is no more: it is given a chunk at a time, when what
//! it has is worked off, and only so much that is no file's.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Poll, ready},
};

use axum::{
    body::Body,
    extract::{
        FromRequest as _, Multipart, Request,
        multipart::{Field, MultipartError},
    },
    http::{HeaderValue, header::CONTENT_DISPOSITION},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};

use super::{fault::Fault, upload::heard};

/// The most between the contents of two parts, in bytes: heads, above all.
const BETWEEN: usize = 64 * 1024;

pub(super) struct Form {
    parts: Multipart,
    pace: Arc<Pace>,
}

/// What the parser may take in.
#[derive(Default)]
struct Pace {
    /// Bytes since a part began or gave something.
    taken: AtomicUsize,
    /// Nothing when it asks next: it is to look at what it has.
    rests: AtomicBool,
}

impl Pace {
    /// A part began, gave something or ended: there may be more in what the parser has.
    fn works(&self) {
        self.taken.store(0, Ordering::Relaxed);
        self.rests.store(true, Ordering::Relaxed);
    }
}

impl Form {
    pub(super) async fn begin(request: Request) -> Result<Self, Fault> {
        let pace = Arc::<Pace>::default();
        let of_body = pace.clone();
        let request = request.map(|body| Body::from_stream(paced(body, of_body)));
        let parts = Multipart::from_request(request, &()).await;
        Ok(Self { parts: parts.map_err(|error| Fault::invalid(error.body_text()))?, pace })
    }

    pub(super) async fn next(&mut self) -> Result<Option<Part<'_>>, Fault> {
        let field = heard(self.parts.next_field()).await?.map_err(broken)?;
        self.pace.works();
        Ok(field.map(|field| Part { field, pace: self.pace.clone() }))
    }
}

pub(super) struct Part<'a> {
    field: Field<'a>,
    pace: Arc<Pace>,
}

impl<'a> Part<'a> {
    /// `None` for what is no file.
    pub(super) fn file_name(&self) -> Option<String> {
        if self.field.name() != Some("file") {
            return None;
        }
        let disposition = self.field.headers().get(CONTENT_DISPOSITION).map(HeaderValue::as_bytes);
        let disposition = String::from_utf8_lossy(disposition.unwrap_or_default());
        Some(parameter(&disposition, "filename").unwrap_or_default())
    }

    pub(super) fn content(self) -> impl Stream<Item = Result<Bytes, MultipartError>> + Unpin + use<'a> {
        let Self { mut field, pace } = self;
        stream::poll_fn(move |context| {
            let next = ready!(field.poll_next_unpin(context));
            pace.works();
            Poll::Ready(next)
        })
    }

    pub(super) async fn pass_over(self) -> Result<(), Fault> {
        let mut content = self.content();
        while let Some(chunk) = heard(content.next()).await? {
            chunk.map_err(broken)?;
        }
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn broken(error: MultipartError) -> Fault {
    Fault::invalid(format!("error reading form: {}", error.body_text()))
}

fn paced(body: Body, pace: Arc<Pace>) -> impl Stream<Item = io::Result<Bytes>> {
    let mut chunks = body.into_data_stream();
    stream::poll_fn(move |context| {
        if pace.rests.swap(false, Ordering::Relaxed) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if pace.taken.load(Ordering::Relaxed) > BETWEEN {
            let why = format!("more than {BETWEEN} bytes between two files");
            return Poll::Ready(Some(Err(io::Error::other(why))));
        }
        let next = ready!(chunks.poll_next_unpin(context));
        pace.rests.store(true, Ordering::Relaxed);
        if let Some(Ok(chunk)) = &next {
            pace.taken.fetch_add(chunk.len(), Ordering::Relaxed);
        }
        Poll::Ready(next.map(|chunk| chunk.map_err(io::Error::other)))
    })
}

/// A parameter of `Content-Disposition` (RFC 6266, section 4.1).
fn parameter(disposition: &str, wanted: &str) -> Option<String> {
    let (_, mut rest) = disposition.split_once(';')?;
    loop {
        let (name, value) = rest.split_once('=')?;
        let value = value.trim_start();
        let (value, after) = if let Some(quoted) = value.strip_prefix('"') {
            unquoted(quoted)?
        } else {
            let (value, after) = value.split_at(value.find(';').unwrap_or(value.len()));
            (value.trim_end().to_owned(), after)
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = after.trim_start().strip_prefix(';')?;
    }
}

/// A quoted string (RFC 9110, section 5.6.4) without its first quote, and what follows it. As envd reads it, by Go's
/// `mime`: a backslash quotes what needs to be quoted; before anything else it means itself, as browsers send it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => {
                let quoted = characters.next_if(|(_, next)| "()<>@,;:\\\"/[]?=".contains(*next));
                value.push(quoted.map_or('\\', |(_, quoted)| quoted));
            }
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_read_as_envd_reads_them() {
        for (disposition, want) in [
            (r#"form-data; name="file"; filename="a b.txt""#, Some("a b.txt")),
            (r#"form-data; filename="/home/user/ä;=.txt"; name="file""#, Some("/home/user/ä;=.txt")),
            (r#"form-data; name="filename=x"; FileName = plain.txt ; other=1"#, Some("plain.txt")),
            // httpx, of `a\b.txt`; a browser, of the same.
            (r#"form-data; name="file"; filename="a\\b.txt""#, Some(r"a\b.txt")),
            (r#"form-data; name="file"; filename="a\b.txt""#, Some(r"a\b.txt")),
            (r#"form-data; name="file"; filename="a\"b\\""#, Some(r#"a"b\"#)),
            (r#"form-data; name="file"; filename="""#, Some("")),
            (r#"form-data; name="file"; filename="no end"#, None),
            (r#"form-data; name="file""#, None),
            ("form-data", None),
        ] {
            assert_eq!(parameter(disposition, "filename").as_deref(), want, "{disposition}");
        }
    }

    async fn files(body: Body) -> Result<Vec<(String, usize)>, Fault> {
        let request = Request::builder().header("content-type", "multipart/form-data; boundary=b").body(body);
        let mut form = Form::begin(request.expect("a request")).await?;
        let mut files = Vec::new();
        while let Some(part) = form.next().await? {
            let Some(name) = part.file_name() else {
                part.pass_over().await?;
                continue;
            };
            let mut content = part.content();
            let mut length = 0;
            while let Some(chunk) = content.next().await {
                length += chunk.map_err(|error| Fault::invalid(error.body_text()))?.len();
            }
            files.push((name, length));
        }
        Ok(files)
    }

    /// As much as anybody asks for, and how much that was.
    fn endless(begin: &str) -> (Body, Arc<AtomicUsize>) {
        let given = Arc::<AtomicUsize>::default();
        let counted = given.clone();
        let rest = stream::repeat_with(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Bytes::from(vec![b'x'; 16 << 10])
        });
        let all = stream::iter([Bytes::copy_from_slice(begin.as_bytes())]).chain(rest.take(1000));
        (Body::from_stream(all.map(Ok::<_, io::Error>)), given)
    }

    #[tokio::test]
    async fn what_is_no_file_is_not_kept() {
        for begin in ["", "--b\r\n", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\""] {
            let (body, given) = endless(begin);
            assert!(files(body).await.is_err(), "{begin}");
            assert!(given.load(Ordering::Relaxed) <= 6, "{begin}");
        }
    }

    #[tokio::test]
    async fn what_is_there_is_worked_off_before_more_is_taken_in() {
        const PARTS: usize = 3000;
        let parts = (0..PARTS).map(|part| {
            let name = if part % 2 == 0 { "file" } else { "other" };
            let content = if part % 3 == 0 { "" } else { "x" };
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
        });
        let last = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n".to_owned();
        let (body, given) = endless(&parts.chain([last]).collect::<String>());
        let request = Request::builder().header("content-type", "multipart/form-data; boundary=b").body(body);
        let mut form = Form::begin(request.expect("a request")).await.expect("a form");
        for part in 0..PARTS {
            let field = form.next().await.expect("a form").expect("a part");
            // Some are not looked at.
            if part % 5 > 0 {
                field.pass_over().await.expect("a part");
            }
            assert_eq!(given.load(Ordering::Relaxed), 0, "{part}");
        }
        let last = form.next().await.expect("a form").expect("a part");
        last.content().next().await.expect("more").expect("content");
        assert!(given.load(Ordering::Relaxed) <= 1);
    }

    #[tokio::test]
    async fn a_file_is_taken_in_chunk_by_chunk() {
        let head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
        let (body, given) = endless(head);
        let request = Request::builder().header("content-type", "multipart/form-data; boundary=b").body(body);
        let mut form = Form::begin(request.expect("a request")).await.expect("a form");
        let mut content = form.next().await.expect("a form").expect("a file").content();
        for number in 1..100 {
            content.next().await.expect("more").expect("content");
            assert!(given.load(Ordering::Relaxed) <= number + 1, "{number}");
        }
        let long = format!(
            "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n{}\r\n{head}y\r\n--b--\r\n",
            "x".repeat(1 << 20)
        );
        assert_eq!(files(Body::from(long)).await.expect("a form"), [("a".to_owned(), 1)]);
    }
}
