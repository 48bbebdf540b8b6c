//! Just enough of a reader of Rust to list the paths that a file names in its own crate.

/// The crate's name as its binaries write it.
const CRATE: &str = "client_proxy";

/// Every path that `source`, the file of `module`, names in this crate, from the root down, with its line.
/// Groups are taken apart; a name for the root itself is told as the path `*`.
pub(crate) fn crate_paths(source: &str, module: &[String]) -> Vec<(usize, Vec<String>)> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    // The inline modules that the place is in, and at which depth of braces each began.
    let mut inside: Vec<(usize, String)> = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let text = |offset: usize| tokens.get(at + offset).map_or("", |token| token.text.as_str());
        let after_path = at > 0 && tokens[at - 1].text == "::";
        // `::client_proxy` begins a path, `other::client_proxy` does not.
        let begins = !after_path || at < 2 || !is_name(&tokens[at - 2].text);
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => {
                depth = usize::saturating_sub(depth, 1);
                inside.retain(|(began, _)| *began <= depth);
            }
            "mod" if text(2) == "{" => inside.push((depth + 1, text(1).to_owned())),
            "crate" if text(1) == "self" || (text(1) == "as" && begins) => {
                found.push((token.line, vec!["*".to_owned()]));
            }
            name @ ("crate" | "super" | CRATE) if text(1) == "::" && begins => {
                let names = inside.iter().map(|(_, name)| name);
                let mut base: Vec<String> = module.iter().chain(names).cloned().collect();
                if name == "super" {
                    base.pop();
                } else {
                    base.clear();
                }
                let mut paths = Vec::new();
                let end = tree(&tokens, at + 2, base, &mut paths);
                found.extend(paths.into_iter().map(|path| (token.line, path)));
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Reads what follows a `::` at `at`: a name, a glob or a group. Returns where it ends.
fn tree(tokens: &[Token], mut at: usize, mut base: Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    loop {
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
        match text(at) {
            "{" => {
                at += 1;
                while !matches!(text(at), "}" | "") {
                    at = tree(tokens, at, base.clone(), paths);
                    while !matches!(text(at), "," | "}" | "") {
                        at += 1;
                    }
                    at += usize::from(text(at) == ",");
                }
                return at + 1;
            }
            "super" => drop(base.pop()),
            "self" if !base.is_empty() => {}
            name if is_name(name) || name == "*" => base.push(name.to_owned()),
            // `::<`: the path before it is all.
            _ => {
                paths.push(base);
                return at;
            }
        }
        at += 1;
        if text(at) != "::" {
            paths.push(base);
            return at;
        }
        at += 1;
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

struct Token {
    line: usize,
    text: String,
}

/// Names, `::` and single other characters; comments, literals and lifetimes are left out.
fn tokens(source: &str) -> Vec<Token> {
    let mut reader = Reader { rest: source, line: 1 };
    let mut tokens = Vec::new();
    while let Some(first) = reader.rest.chars().next() {
        let line = reader.line;
        let mut token = |text: &str| {
            tokens.push(Token { line, text: text.to_owned() });
        };
        if reader.rest.starts_with("//") {
            reader.take_while(|char| char != '\n');
        } else if reader.rest.starts_with("/*") {
            reader.comment();
        } else if first == '"' {
            reader.string();
        } else if first == '\'' {
            reader.quote();
        } else if first.is_ascii_digit() {
            reader.take_while(char::is_alphanumeric);
        } else if is_name(reader.rest) {
            let name = reader.take_while(|char| char.is_alphanumeric() || char == '_');
            let raw = matches!(name, "r" | "br" | "cr");
            let after = reader.rest.trim_start_matches('#');
            match (raw, after.chars().next()) {
                (true, Some('"')) => reader.raw_string(),
                // A raw name: `r#control` is `control`.
                (true, _) if after.len() < reader.rest.len() => drop(reader.take("#".len())),
                _ => token(name),
            }
        } else if reader.rest.starts_with("::") {
            token(reader.take("::".len()));
        } else {
            let char = reader.take(first.len_utf8());
            if !first.is_whitespace() {
                token(char);
            }
        }
    }
    tokens
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    /// Goes on by this many bytes, or to the end.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, goes_on: impl Fn(char) -> bool) -> &'a str {
        self.take(self.rest.find(|char| !goes_on(char)).unwrap_or(self.rest.len()))
    }

    /// Goes on behind the next `end`.
    fn take_through(&mut self, end: &str) {
        let found = self.rest.find(end);
        self.take(found.map_or(self.rest.len(), |found| found + end.len()));
    }

    /// Block comments nest.
    fn comment(&mut self) {
        let mut depth = 0;
        while !self.rest.is_empty() {
            if self.rest.starts_with("/*") {
                depth += 1;
                self.take(2);
            } else if self.rest.starts_with("*/") {
                depth -= 1;
                self.take(2);
                if depth == 0 {
                    return;
                }
            } else {
                self.take(self.rest.chars().next().map_or(0, char::len_utf8));
            }
        }
    }

    fn string(&mut self) {
        self.take(1);
        loop {
            self.take_while(|char| !matches!(char, '"' | '\\'));
            if !self.rest.starts_with('\\') {
                self.take(1);
                return;
            }
            self.escape();
        }
    }

    /// A backslash and what it escapes.
    fn escape(&mut self) {
        let escaped = self.rest.chars().nth(1);
        self.take(1 + escaped.map_or(0, char::len_utf8));
    }

    fn raw_string(&mut self) {
        let hashes = self.take_while(|char| char == '#');
        self.take(1);
        self.take_through(&format!("\"{hashes}"));
    }

    /// A character, or the tick of a lifetime, whose name then counts for nothing.
    fn quote(&mut self) {
        self.take(1);
        let mut chars = self.rest.chars();
        match (chars.next(), chars.next()) {
            (Some('\\'), _) => {
                self.escape();
                self.take_through("'");
            }
            (Some(char), Some('\'')) => drop(self.take(char.len_utf8() + 1)),
            _ => drop(self.take_while(|char| char.is_alphanumeric() || char == '_')),
        }
    }
}
