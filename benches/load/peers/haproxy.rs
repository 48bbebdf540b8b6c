//! HAProxy: Debian's package, one thread a core, the Host's regex in a map that names the backend.

use std::{fs, process::Command};

use super::{Peer, Site};
use crate::machine;

pub(super) const PEER: Peer = Peer {
    name: "HAProxy",
    is_ours: false,
    knows_many: false,
    program: || machine::find("haproxy"),
    command: |program, site| {
        let file = site.folder.join("haproxy.cfg");
        fs::write(site.folder.join("hosts.map"), r"^[0-9]+-[a-z0-9]+(-[^.]*)?\. sandboxes")?;
        fs::write(&file, configuration(site))?;
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(file);
        Ok(command)
    },
};

fn configuration(site: &Site<'_>) -> String {
    let Site { listen, tls, certificate, h2, upstream, threads, connections, .. } = site;
    let both = certificate.both();
    let both = both.display();
    let map = site.folder.join("hosts.map");
    let map = map.display();
    format!(
        "
global
    nbthread {threads}
    maxconn {connections}
    tune.bufsize 65536
    tune.pool-low-fd-ratio 90
    tune.pool-high-fd-ratio 95
defaults
    mode http
    http-reuse always
    option forwardfor
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout tunnel 1h
    timeout http-keep-alive 1h
frontend edge
    bind {listen} backlog 4096
    bind {h2} backlog 4096 proto h2
    bind {tls} backlog 4096 ssl crt {both} alpn http/1.1
    http-request set-header X-Request-Id %[uuid()]
    use_backend %[req.hdr(host),lower,map_reg({map})]
backend sandboxes
    server node {upstream} pool-purge-delay 1h
"
    )
}
