//! What the playground says when it is ready.

use std::fmt::Write as _;

use super::options::Addresses;

/// The welcome: where everything is, and commands to paste. `templates` are the names one can create, `over_tls`
/// what there is to say of `--tls`. The `key` is told if it was made here: one that somebody brought is no news to
/// them, and may open more than this.
pub(crate) fn text(at: &Addresses, key: Option<&str>, templates: &str, over_tls: &str) -> String {
    let Addresses { api, proxy, health, admin, .. } = at;
    let mut text = String::new();
    let own = key.map_or("(the key is that of your E2B_API_KEY)".to_owned(), |key| format!("export E2B_API_KEY={key}"));
    let key = variable(key);
    // Writing to a string does not fail.
    let _ = write!(
        text,
        r#"
  client-proxy playground

    control API   http://{api}
    proxy         http://{proxy}
    health        http://{health}/health      metrics  http://{health}/metrics
    admin         http://{admin}/sandboxes/$ID      (of one sandbox)
    templates     {templates}

  For development only: it serves this machine alone and isolates nothing.
  A sandbox is a process of yours and may do whatever you may.

  Create a sandbox that sleeps when it is not used, and wakes by traffic:

    {own}
    ID=$(curl -s http://{api}/sandboxes -H "X-API-KEY: $E2B_API_KEY" \
         -d '{{"templateID":"counter","timeout":300,"autoPause":true,"autoResume":{{"enabled":true}}}}' \
         | sed 's/.*"sandboxID":"\([a-z0-9]*\)".*/\1/'); echo "$ID"

  Ask it something, through the proxy; it answers how many requests it has seen:

    curl http://{proxy}/ -H "E2b-Sandbox-Id: $ID" -H "E2b-Sandbox-Port: 8000"

  Put it to sleep (every process of it is stopped), then ask again: the count goes on.

    curl -X POST http://{api}/sandboxes/$ID/pause -H "X-API-KEY: $E2B_API_KEY"
    curl http://{proxy}/ -H "E2b-Sandbox-Id: $ID" -H "E2b-Sandbox-Port: 8000"

  E2B's SDKs, unmodified (in Python also: export NO_PROXY=127.0.0.1,localhost):

    export {key}E2B_API_URL=http://{api} E2B_SANDBOX_URL=http://{proxy}
{over_tls}
  Ctrl-C ends the playground and every sandbox.
"#
    );
    text
}

/// The key's part of a line that exports more.
pub(super) fn variable(key: Option<&str>) -> String {
    key.map(|key| format!("E2B_API_KEY={key} ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_name_the_real_addresses_and_the_key() {
        let at = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let at = Addresses { api: at(1), proxy: at(2), health: at(3), admin: at(4), tls: None };
        let said = |key| text(&at, key, "base, counter", "");
        assert!(!said(None).contains("E2B_API_KEY="));
        let text = said(Some("e2b_00"));
        for part in [
            "E2B_API_URL=http://127.0.0.1:1 E2B_SANDBOX_URL=http://127.0.0.1:2",
            "export E2B_API_KEY=e2b_00\n",
            r#"-d '{"templateID":"counter","timeout":300,"autoPause":true,"autoResume":{"enabled":true}}'"#,
            "isolates nothing",
            "http://127.0.0.1:4/sandboxes/$ID",
        ] {
            assert!(text.contains(part), "{part}");
        }
    }
}
