//! How a process ended, in envd's words, which are those of Go's `os.ProcessState`.

use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

use super::messages::End;

impl End {
    /// Without a status nobody knows.
    pub(super) fn of(status: Option<ExitStatus>) -> Self {
        if let Some(code) = status.and_then(|status| status.code()) {
            let text = format!("exit status {code}");
            let error = (code != 0).then(|| text.clone());
            return Self { exit_code: code, exited: true, status: text, error };
        }
        let core = if status.is_some_and(|status| status.core_dumped()) { " (core dumped)" } else { "" };
        let text = match status.and_then(|status| status.signal()) {
            Some(number) => format!("signal: {}{core}", signal_name(number)),
            None => "unknown".to_owned(),
        };
        Self { exit_code: -1, exited: false, status: text.clone(), error: Some(text) }
    }
}

/// Go's `syscall.Signal.String`.
fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace/breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        10 => "user defined signal 1",
        11 => "segmentation fault",
        12 => "user defined signal 2",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        _ => return format!("signal {number}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_as_envd_tells_them() {
        let status = |raw: i32| End::of(Some(ExitStatus::from_raw(raw)));
        let told = |end: End| (end.exit_code, end.exited, end.status, end.error);
        assert_eq!(told(status(0)), (0, true, "exit status 0".into(), None));
        assert_eq!(told(status(3 << 8)), (3, true, "exit status 3".into(), Some("exit status 3".into())));
        assert_eq!(told(status(9)), (-1, false, "signal: killed".into(), Some("signal: killed".into())));
        assert_eq!(told(status(0x8b)).2, "signal: segmentation fault (core dumped)");
        assert_eq!(told(status(34)).2, "signal: signal 34");
    }
}
