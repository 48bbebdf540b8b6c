//! The proxy of this package, as cargo built it for this benchmark: with a REST control plane, with a list of
//! sandboxes, with Redis.

use std::{fs, io, path::PathBuf, process::Command};

use super::{Peer, Site};
use crate::{
    catalog::{self, SANDBOXES},
    machine,
};

pub(super) const PEER: Peer = Peer {
    name: "client-proxy",
    is_ours: true,
    knows_many: false,
    program: || Some(env!("CARGO_BIN_EXE_client-proxy").into()),
    command: |program, site| {
        let url = format!("url = \"http://{}\", api_key = \"bench\"", site.control_plane);
        let planes = ["catalog", "resume"].map(|table| format!("{table}.kind = \"rest\"\n{table}.rest = {{ {url} }}"));
        command(program, site, &planes.join("\n"))
    },
};

/// With a list of many sandboxes.
pub(super) const STATIC: Peer = Peer {
    name: "static list",
    knows_many: true,
    command: |program, site| {
        let sandboxes = (0..SANDBOXES).map(|n| format!("many{n} = \"127.0.0.1\""));
        let list = sandboxes.chain(["bench = \"127.0.0.1\"".to_owned()]).collect::<Vec<_>>().join(", ");
        command(program, site, &format!("catalog = {{ kind = \"static\", static = {{ {list} }} }}\n{NOBODY}"))
    },
    ..PEER
};

/// With Redis, which has the same.
pub(super) const REDIS: Peer = Peer {
    name: "Redis",
    program: || machine::find(catalog::TOOL.program).and_then(|_| (PEER.program)()),
    command: |program, site| {
        let port = site.redis.ok_or_else(|| io::Error::other("no Redis"))?;
        let urls = format!("catalog = {{ kind = \"redis\", redis.urls = [\"redis://127.0.0.1:{port}\"] }}");
        command(program, site, &format!("{urls}\n{NOBODY}"))
    },
    ..STATIC
};

const NOBODY: &str = "resume.kind = \"none\"";

fn command(program: PathBuf, site: &Site<'_>, planes: &str) -> io::Result<Command> {
    let file = site.folder.join("client-proxy.toml");
    fs::write(&file, configuration(site, planes))?;
    let mut command = Command::new(program);
    // Variables could override what stands in the file.
    command.env_clear().arg("--config").arg(file);
    Ok(command)
}

fn configuration(site: &Site<'_>, planes: &str) -> String {
    let Site { listen, tls, certificate, h2, health, upstream, threads, connections, .. } = site;
    format!(
        r#"
server.listen = ["{listen}", "{h2}"]
server.tls.listen = ["{tls}"]
server.tls.certificates = [{{ cert = "{cert}", key = "{key}" }}]
server.workers = {threads}
server.max_connections = {connections}
health.listen = "{health}"
admin.listen = ""
{planes}
resume.max_held = {connections}
resume.max_held_per_sandbox = {connections}
upstream.address = "{{node}}:{port}"
log.access = "off"
"#,
        port = upstream.port(),
        cert = certificate.chain().display(),
        key = certificate.key().display(),
    )
}
