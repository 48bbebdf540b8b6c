//! Two readings of HTTP/1.1: a lenient one of what a client sent, which yields as many requests as anybody could
//! see in it who follows RFC 9112, and a strict one of what came upstream, which takes nothing but the one canonical
//! form. Both are simple on purpose, and share nothing with the parsers that are tested.

/// A request as one of the readings has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub body: Vec<u8>,
    /// All of its body was there.
    pub whole: bool,
}

/// What a client sent: everything before something that is no HTTP, or after which nothing counts.
#[must_use]
pub fn lenient(mut bytes: &[u8]) -> Vec<Request> {
    let mut all = Vec::new();
    while let Some((request, rest)) = lenient_one(bytes) {
        all.push(request);
        let Some(rest) = rest else { break };
        bytes = rest;
    }
    all
}

/// A line without its end, and what comes behind.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..]))
}

/// One request, and what may be another.
fn lenient_one(mut rest: &[u8]) -> Option<(Request, Option<&[u8]>)> {
    let first = loop {
        let (first, behind) = line(rest)?;
        rest = behind;
        if !first.is_empty() {
            break first;
        }
    };
    let mut words = first.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (method, target) = (words.next()?.to_vec(), words.next()?.to_vec());
    let (mut lengths, mut codings, mut closes) = (Vec::new(), Vec::new(), false);
    loop {
        let (field, behind) = line(rest)?;
        rest = behind;
        if field.is_empty() {
            break;
        }
        let colon = field.iter().position(|byte| *byte == b':')?;
        let (name, value) = (field[..colon].to_ascii_lowercase(), field[colon + 1..].trim_ascii());
        match &*name {
            b"content-length" => lengths.push(value),
            b"transfer-encoding" => codings.extend(value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)),
            b"connection" => {
                closes |= value.split(|byte| *byte == b',').any(|v| v.trim_ascii().eq_ignore_ascii_case(b"close"));
            }
            _ => {}
        }
    }
    let request = Request { method, target, ..Request::default() };
    if !codings.is_empty() {
        // Any other coding, or a second one, and nobody knows where the body ends.
        if codings.len() > 1 || !codings[0].eq_ignore_ascii_case(b"chunked") {
            return None;
        }
        let mut body = Vec::new();
        let end = chunks(rest, &mut body, false);
        let whole = matches!(end, Chunks::End(..));
        let next = match end {
            // Behind trailers nothing counts: their bare LFs can be read in two ways.
            Chunks::End(rest, false) if lengths.is_empty() && !closes => Some(rest),
            _ => None,
        };
        return Some((Request { body, whole, ..request }, next));
    }
    let length = match lengths.first() {
        None => 0,
        Some(first) => {
            // Of one value (RFC 9110 §8.6), however many zeros they begin with.
            let first = number(first)?;
            lengths.iter().all(|length| number(length) == Some(first)).then_some(first)?
        }
    };
    let length = usize::try_from(length).ok().filter(|length| *length <= rest.len());
    let (body, next) = length.map_or((rest, None), |length| (&rest[..length], Some(&rest[length..])));
    Some((Request { body: body.to_vec(), whole: next.is_some(), ..request }, next.filter(|_| !closes)))
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

enum Chunks<'a> {
    /// What is behind it; whether there were trailers.
    End(&'a [u8], bool),
    /// It may go on.
    Unfinished,
    Broken(&'static str),
}

/// Takes the chunks of a body, and its trailers. Strictly: as hyper writes them.
fn chunks<'a>(mut rest: &'a [u8], body: &mut Vec<u8>, strict: bool) -> Chunks<'a> {
    loop {
        let Some((size, behind)) = line(rest) else { return Chunks::Unfinished };
        if strict && !rest[size.len()..].starts_with(b"\r\n") {
            return Chunks::Broken("a bare LF behind a chunk's size");
        }
        let digits = size.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let tail = size[digits..].trim_ascii();
        let significant = size[..digits].iter().skip_while(|digit| **digit == b'0').count();
        if digits == 0 || significant > 16 || !(tail.is_empty() || (tail[0] == b';' && !strict)) {
            return Chunks::Broken("no chunk size");
        }
        if strict && size.len() > digits {
            return Chunks::Broken("something behind a chunk's size");
        }
        let size = std::str::from_utf8(&size[..digits]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let Some(size) = size else { return Chunks::Broken("no chunk size") };
        rest = behind;
        if size == 0 {
            break;
        }
        if rest.len() < size.saturating_add(2) {
            body.extend(&rest[..size.min(rest.len())]);
            return Chunks::Unfinished;
        }
        body.extend(&rest[..size]);
        if &rest[size..size + 2] != b"\r\n" {
            return Chunks::Broken("no CRLF behind a chunk");
        }
        rest = &rest[size + 2..];
    }
    let mut trailers = false;
    loop {
        let Some((field, behind)) = line(rest) else { return Chunks::Unfinished };
        if strict && !rest[field.len()..].starts_with(b"\r\n") {
            return Chunks::Broken("a bare LF in trailers");
        }
        let crlf = rest.starts_with(b"\r\n");
        rest = behind;
        if field.is_empty() {
            return Chunks::End(rest, trailers || !crlf);
        }
        trailers = true;
        if strict {
            let Some((name, _)) = canonical_field(field) else { return Chunks::Broken("a trailer") };
            if [&b"content-length"[..], b"transfer-encoding", b"host", b"connection"].contains(&&*name) {
                return Chunks::Broken("a trailer that belongs into a head");
            }
        }
    }
}

/// What came upstream on one connection: requests in the one form there is, the last of them perhaps unfinished; and
/// how many bytes the whole ones have.
///
/// # Errors
/// What is not canonical.
pub fn strict(bytes: &[u8]) -> Result<(Vec<Request>, usize), String> {
    let (mut all, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok((all, bytes.len() - rest.len()));
        };
        let (head, behind) = (&rest[..end + 2], &rest[end + 4..]);
        let (request, next) = strict_one(head, behind)
            .map_err(|why| format!("{why}: {:?}", String::from_utf8_lossy(&rest[..rest.len().min(1000)])))?;
        all.push(request);
        let Some(next) = next else { return Ok((all, bytes.len() - rest.len())) };
        rest = next;
    }
    Ok((all, bytes.len()))
}

type One<'a> = (Request, Option<&'a [u8]>);

fn strict_one<'a>(head: &[u8], behind: &'a [u8]) -> Result<One<'a>, &'static str> {
    let mut lines = head.strip_suffix(b"\r\n").unwrap_or(head).split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let first = first.strip_suffix(b"\r").unwrap_or(first);
    let words: Vec<&[u8]> = first.split(|byte| *byte == b' ').collect();
    let [method, target, b"HTTP/1.1"] = words[..] else { return Err("no request line") };
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err("no method");
    }
    if !(target.starts_with(b"/") || target == b"*") || target.iter().any(|byte| *byte <= b' ' || *byte == 127) {
        return Err("no target");
    }
    let (mut hosts, mut lengths, mut codings) = (0, Vec::new(), Vec::new());
    for line in lines {
        let field = line.strip_suffix(b"\r").unwrap_or(line);
        let (name, value) = canonical_field(field).ok_or("no field")?;
        match &*name {
            b"host" => hosts += 1,
            b"content-length" => lengths.push(value),
            b"transfer-encoding" => codings.push(value),
            _ => {}
        }
    }
    let request = Request { method: method.to_vec(), target: target.to_vec(), ..Request::default() };
    match (hosts, &lengths[..], &codings[..]) {
        (1, [], []) => Ok((Request { whole: true, ..request }, Some(behind))),
        (1, [length], []) => {
            let length = number(length).filter(|_| length.len() == 1 || length[0] != b'0').ok_or("no length")?;
            let length = usize::try_from(length).ok().filter(|length| *length <= behind.len());
            let (body, next) = length.map_or((behind, None), |length| (&behind[..length], Some(&behind[length..])));
            Ok((Request { body: body.to_vec(), whole: next.is_some(), ..request }, next))
        }
        (1, [], [b"chunked"]) => {
            let mut body = Vec::new();
            let next = match chunks(behind, &mut body, true) {
                Chunks::End(next, _) => Some(next),
                Chunks::Unfinished => None,
                Chunks::Broken(why) => return Err(why),
            };
            Ok((Request { body, whole: next.is_some(), ..request }, next))
        }
        (1, ..) => Err("ambiguous framing"),
        _ => Err("not one Host"),
    }
}

/// Name in lower case, and value.
fn canonical_field(field: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&field[..colon], field[colon + 1..].trim_ascii());
    let good = !name.is_empty() && name.iter().all(|byte| is_token(*byte));
    let clean = value.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 127));
    (good && clean).then(|| (name.to_ascii_lowercase(), value))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
