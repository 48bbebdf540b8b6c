//! The proxy of this package, as cargo built it for this benchmark, with a REST control plane.

use std::{fs, process::Command};

use super::{Peer, Site};

pub(super) const PEER: Peer = Peer {
    name: "client-proxy",
    is_ours: true,
    program: || Some(env!("CARGO_BIN_EXE_client-proxy").into()),
    command: |program, site| {
        let file = site.folder.join("client-proxy.toml");
        fs::write(&file, configuration(site))?;
        let mut command = Command::new(program);
        // Variables could override what stands in the file.
        command.env_clear().arg("--config").arg(file);
        Ok(command)
    },
};

fn configuration(site: &Site<'_>) -> String {
    let Site { listen, tls, certificate, h2, health, upstream, control_plane, threads, connections, .. } = site;
    format!(
        r#"
server.listen = ["{listen}", "{h2}"]
server.tls.listen = ["{tls}"]
server.tls.certificates = [{{ cert = "{cert}", key = "{key}" }}]
server.workers = {threads}
server.max_connections = {connections}
health.listen = "{health}"
admin.listen = ""
catalog.kind = "rest"
catalog.rest = {{ url = "http://{control_plane}", api_key = "bench" }}
resume.kind = "rest"
resume.rest = {{ url = "http://{control_plane}", api_key = "bench" }}
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
