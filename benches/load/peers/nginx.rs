//! nginx: Debian's package, one worker a core, the Host's regex in a map that names the upstream.

use std::{fs, process::Command};

use super::{Peer, Site};
use crate::machine;

pub(super) const PEER: Peer = Peer {
    name: "nginx",
    is_ours: false,
    knows_many: false,
    program: || machine::find("nginx"),
    command: |program, site| {
        let file = site.folder.join("nginx.conf");
        fs::write(&file, configuration(site))?;
        let mut command = Command::new(program);
        // Its log goes where its standard error goes, from the first line on.
        command.arg("-c").arg(file).args(["-e", "stderr"]);
        Ok(command)
    },
};

fn configuration(site: &Site<'_>) -> String {
    let Site { listen, tls, certificate, h2, upstream, threads, connections, .. } = site;
    let (cert, key) = (certificate.chain(), certificate.key());
    let (cert, key) = (cert.display(), key.display());
    let folder = site.folder.display();
    // One worker may get more than its share of the connections, each of which counts twice.
    let (descriptors, events) = (2 * connections + 512, 2 * connections);
    format!(
        r#"
daemon off;
worker_processes {threads};
worker_rlimit_nofile {descriptors};
pid {folder}/pid;
error_log stderr warn;
events {{ worker_connections {events}; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    client_max_body_size 0;
    client_body_buffer_size 64k;
    proxy_buffer_size 64k;
    proxy_buffers 8 64k;
    proxy_busy_buffers_size 128k;
    proxy_buffering off;
    proxy_request_buffering off;
    proxy_read_timeout 1h;
    proxy_send_timeout 1h;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Request-Id $request_id;
    upstream sandboxes {{
        server {upstream};
        keepalive {events};
        keepalive_requests 1000000000;
        keepalive_timeout 1h;
    }}
    map $http_upgrade $connection_upgrade {{
        default upgrade;
        '' '';
    }}
    map $host $node {{
        ~^(?<sandbox_port>[0-9]+)-(?<sandbox>[a-z0-9]+)(-[^.]*)?\. sandboxes;
    }}
    server {{
        listen {listen} reuseport backlog=4096;
        listen {h2} http2 reuseport backlog=4096;
        listen {tls} ssl reuseport backlog=4096;
        ssl_certificate {cert};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_tickets on;
        http2_chunk_size 16k;
        location / {{ proxy_pass http://$node; }}
        location /ws/ {{
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Request-Id $request_id;
            proxy_pass http://$node;
        }}
    }}
}}
"#
    )
}
