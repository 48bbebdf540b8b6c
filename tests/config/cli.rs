//! The binary as an operator meets it: exit codes, what goes to which stream, what stays secret.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    path::PathBuf,
    process::{Command, Output},
    thread,
};

use tempfile::TempDir;

/// The binary with nothing in its environment but what a test puts there.
fn binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_client-proxy"));
    command.env_clear().args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    binary(arguments).output().expect("the binary starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("UTF-8")
}

fn file(text: &[u8]) -> (TempDir, String) {
    let directory = TempDir::new().expect("a directory");
    let path: PathBuf = directory.path().join("proxy.toml");
    std::fs::write(&path, text).expect("written");
    (directory, path.to_str().expect("UTF-8").to_owned())
}

#[test]
fn without_arguments_it_explains_itself_and_fails() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    for word in ["Usage: client-proxy", "--config <FILE>", "check", "health", "Examples:"] {
        assert!(stderr(&output).contains(word), "{word}: {}", stderr(&output));
    }
}

#[test]
#[rustfmt::skip] // one case a line
fn help_and_version_are_answers() {
    for (arguments, word) in [
        (&["--help"][..], "Exit codes"),
        (&["help", "check"], "--config <FILE>"),
        (&["check", "--help"], "effective.toml"),
        (&["health", "--help"], "http://127.0.0.1:3003/health"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(stdout(&output).contains(word), "{}", stdout(&output));
    }
}

#[test]
fn bad_arguments_exit_with_2() {
    for arguments in [
        &["--nonsense"][..],
        &["nonsense"],
        &["--config"],
        &["run"],
        &["check"],
        &["check", "file"],
        &["--config", "a", "check", "--config", "b"],
        &["health", "--url", "not a url"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stdout(&output), "", "{arguments:?}");
        assert!(!stderr(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
fn faults_of_the_file_go_to_stderr_all_at_once() {
    let (_directory, path) = file(b"[server]\nworkers = 'x'\n[admin]\ntoken = 's3cret '\n");
    for arguments in [&["--config", &path][..], &["run", "--config", &path], &["check", "--config", &path]] {
        let output = binary(arguments).env("CLIENT_PROXY__LOG__FORMAT", "xml").output().expect("the binary starts");
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert_eq!(stdout(&output), "");
        for word in [
            "proxy.toml has 3 faults",
            "line 2: server.workers",
            "line 4: admin.token = ***",
            "variable CLIENT_PROXY__LOG__FORMAT: log.format = \"xml\"",
        ] {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(!told.contains("s3cret"), "{told}");
    }
}

#[test]
fn a_file_that_cannot_be_read_exits_with_2() {
    let (directory, binary_file) = file(b"\xff\xfe");
    let missing = directory.path().join("missing.toml");
    for (path, word) in [
        (missing.to_str().expect("UTF-8"), "missing.toml"),
        (directory.path().to_str().expect("UTF-8"), "cannot read"),
        (&binary_file, "line 1: the file is not UTF-8"),
    ] {
        let output = run(&["check", "--config", path]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
}

#[test]
fn check_prints_what_can_be_checked_again() {
    let (_directory, path) = file(
        b"catalog.kind = 'static'\nresume.kind = 'none'\n[shutdown]\ndrain_delay = '1500ms'\ndrain_timeout = '1m'\n",
    );
    let first = run(&["check", "--config", &path]);
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    assert!(stdout(&first).contains("terminationGracePeriodSeconds: 64\n"), "{}", stdout(&first));
    assert!(stderr(&first).contains("warning: catalog.static is empty"), "{}", stderr(&first));

    let (_directory, path) = file(&first.stdout);
    let second = run(&["check", "--config", &path]);
    assert_eq!(stdout(&second), stdout(&first));
}

#[test]
fn check_passes_the_default_file_on_a_fresh_machine() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/default.toml");
    let output = run(&["check", "--config", path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn check_masks_secrets_of_file_and_environment() {
    let (_directory, path) = file(b"admin.token = '${TOKEN}'\ncatalog.kind = 'rest'");
    let output = binary(&["check", "--config", &path])
        .env("TOKEN", "s3cret-1")
        .env("CLIENT_PROXY__CATALOG__REST__API_KEY", "s3cret-2")
        .env("CLIENT_PROXY__CATALOG__REST__URL", "http://u:s3cret-3@host")
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("token = \"***\""), "{}", stdout(&output));
    assert!(!format!("{output:?}").contains("s3cret"), "{output:?}");
}

/// A server for one request; what it was asked comes back when it is joined.
fn serve_once(answer: &'static str) -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).expect("a head") == 1 {
            head.push(byte[0]);
        }
        socket.write_all(answer.as_bytes()).expect("answered");
        String::from_utf8(head).expect("UTF-8")
    });
    (format!("http://{address}"), server)
}

#[test]
fn health_is_what_the_endpoint_says() {
    for (answer, code) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\nhealthy", 0),
        ("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", 1),
        ("HTTP/1.1 302 Found\r\nlocation: /ok\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", 1),
        ("SSH-2.0-nonsense\r\n", 1),
    ] {
        let (url, server) = serve_once(answer);
        // A proxy in the environment is not asked, nor are certificates needed.
        let output = binary(&["health", "--url", &format!("{url}/health")])
            .env("http_proxy", "http://127.0.0.1:1")
            .env("SSL_CERT_FILE", "/nonexistent")
            .env("SSL_CERT_DIR", "/nonexistent")
            .output()
            .expect("the binary starts");
        assert_eq!(output.status.code(), Some(code), "{answer}: {}", stderr(&output));
        assert_eq!(stderr(&output).is_empty(), code == 0, "{}", stderr(&output));
        assert!(server.join().expect("served").starts_with("GET /health HTTP/1.1\r\n"));
    }
}

#[test]
fn health_fails_where_nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let output = run(&["health", "--url", &format!("http://{address}/health")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no answer"), "{}", stderr(&output));
}

#[test]
fn an_environment_of_e2bs_is_a_configuration() {
    let variables =
        [("REDIS_URL", "redis:6379"), ("REDIS_PASSWORD", "s3cret"), ("API_INTERNAL_GRPC_ADDRESS", "api:5009")];
    let output = binary(&["check", "--from-e2b-env"]).envs(variables).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("urls = [\"redis://***@redis:6379\"]"), "{}", stdout(&output));
    assert!(!stdout(&output).contains("s3cret"));
    let output = binary(&[]).env("REDIS_URL", "nonsense://").output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(2), "without arguments it takes the environment");
    assert!(stderr(&output).contains("variable REDIS_URL: catalog.redis.urls[0]"), "{}", stderr(&output));
    for arguments in [&["run", "--from-e2b-env", "--config", "a"][..], &["check", "--from-e2b-env", "--config", "a"]] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let output = run(&["run", "--from-e2b-env"]);
    assert!(stderr(&output).contains("neither REDIS_URL nor REDIS_CLUSTER_URL is set"), "{}", stderr(&output));
}
