//! The environment variables of E2B's own client-proxy, as the tree that a file becomes: whoever swaps the program in
//! the job's file changes nothing else. What follows is the same for both.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    env::Environment,
    fault::{Fault, Place, Wrong},
    tree::{Entries, Entry, Item, Value},
};

/// Either says that this is such an environment. The latter wins.
pub(super) const REDIS: [&str; 2] = ["REDIS_URL", "REDIS_CLUSTER_URL"];

/// A load balancer is always in front, and it is somewhere here: private networks (RFC 1918, RFC 6598 §7, RFC 4193),
/// this machine, and the networks of Google's load balancers, which are nobody else's.
const TRUSTED: [&str; 9] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "fc00::/7",
    "127.0.0.0/8",
    "::1/128",
    "35.191.0.0/16",
    "130.211.0.0/22",
];

/// All that E2B's program reads and this one takes.
const NAMES: [&str; 13] = [
    "PROXY_PORT",
    "HEALTH_PORT",
    REDIS[0],
    REDIS[1],
    "REDIS_TLS_CA_BASE64",
    "REDIS_TLS_ENABLED",
    "REDIS_PASSWORD",
    "REDIS_POOL_SIZE",
    "API_INTERNAL_GRPC_ADDRESS",
    "API_EDGE_GRPC_ADDRESS",
    OAUTH[0].0,
    OAUTH[1].0,
    OAUTH[2].0,
];
const OAUTH: [(&str, &str); 3] = [
    ("API_EDGE_GRPC_OAUTH_CLIENT_ID", "client_id"),
    ("API_EDGE_GRPC_OAUTH_CLIENT_SECRET", "client_secret"),
    ("API_EDGE_GRPC_OAUTH_TOKEN_URL", "token_url"),
];
const COLLECTOR: &str = "OTEL_COLLECTOR_GRPC_ENDPOINT";
/// Where an address of gRPC names none.
const GRPC_PORT: &str = "443";

/// What the variables come to.
pub(super) struct Read {
    pub(super) root: Entries,
    pub(super) faults: Vec<Fault>,
    /// What an operator is told at the start.
    pub(super) remarks: Vec<String>,
    pub(super) warnings: Vec<String>,
}

struct Reader<'e> {
    env: &'e Environment,
    root: Entries,
    faults: Vec<Fault>,
}

pub(super) fn read(env: &Environment) -> Read {
    let mut reader = Reader { env, root: Entries::new(), faults: Vec::new() };
    let mut warnings = Vec::new();
    reader.listeners();
    reader.redis();
    if !reader.api() {
        let wrong = "neither API_INTERNAL_GRPC_ADDRESS nor API_EDGE_GRPC_ADDRESS is set: no paused sandbox is woken";
        warnings.push(wrong.to_owned());
    }
    if let Some((name, address)) = reader.get(COLLECTOR) {
        let url = if address.contains("://") { address } else { format!("http://{address}") };
        reader.put("otlp.endpoint", Value::Text(url), name);
    }
    let seen: Vec<_> = NAMES.into_iter().chain([COLLECTOR]).filter(|name| env.first(&[name]).is_some()).collect();
    let mut remarks = vec![format!("the configuration is E2B's environment: {}", seen.join(", "))];
    if seen.contains(&"REDIS_POOL_SIZE") {
        remarks.push("REDIS_POOL_SIZE has no effect: one connection carries all lookups".to_owned());
    }
    Read { root: reader.root, faults: reader.faults, remarks, warnings }
}

impl Reader<'_> {
    fn listeners(&mut self) {
        if let Some((name, port)) = self.get("PROXY_PORT") {
            let listen = item(Value::Text(format!("0.0.0.0:{port}")), name);
            self.put("server.listen", Value::List(vec![listen]), name);
        }
        if let Some((name, port)) = self.get("HEALTH_PORT") {
            self.put("health.listen", Value::Text(format!("0.0.0.0:{port}")), name);
        }
        let trusted = TRUSTED.map(|network| item(Value::Text(network.into()), REDIS[0])).into();
        self.put("server.trusted_proxies", Value::List(trusted), REDIS[0]);
    }

    fn redis(&mut self) {
        let [single, cluster] = REDIS.map(|name| self.get(name));
        let is_cluster = cluster.is_some();
        let Some((name, text)) = cluster.or(single) else {
            let wrong = Wrong::new("neither REDIS_URL nor REDIS_CLUSTER_URL is set", "set one of them");
            return self.fault("catalog.redis.urls", Place::Unset, wrong);
        };
        let ca = self.get("REDIS_TLS_CA_BASE64");
        let tls = self.flag("REDIS_TLS_ENABLED").unwrap_or(ca.is_some());
        let password = self.get("REDIS_PASSWORD").map(|(_, password)| password);
        // Of a cluster there may be several; of one server a comma is part of its password.
        let separator = if is_cluster && !text.contains('@') { ',' } else { '\n' };
        let urls = text.split(separator).map(str::trim).filter(|text| !text.is_empty());
        let urls = urls.map(|text| item(Value::Text(url(text, tls, password.as_deref())), name)).collect();
        self.put("catalog.kind", Value::Text("redis".into()), name);
        self.put("catalog.redis.urls", Value::List(urls), name);
        self.put("catalog.redis.cluster", Value::Boolean(is_cluster), name);
        if let Some((name, ca)) = ca {
            self.put("catalog.redis.ca_base64", Value::Text(ca), name);
        }
    }

    /// Whether there is one to ask.
    fn api(&mut self) -> bool {
        let (internal, edge) = (self.get("API_INTERNAL_GRPC_ADDRESS"), self.get("API_EDGE_GRPC_ADDRESS"));
        let tls = internal.is_none();
        let Some((name, address)) = internal.or(edge) else {
            self.put("resume.kind", Value::Text("none".into()), REDIS[0]);
            return false;
        };
        // As Go's gRPC writes it.
        let address = address.trim_start_matches("dns:///").to_owned();
        let bare = address.rsplit_once(':').is_none() || address.ends_with(']');
        let address = if bare { format!("{address}:{GRPC_PORT}") } else { address };
        self.put("resume.kind", Value::Text("grpc".into()), name);
        self.put("resume.grpc.address", Value::Text(address), name);
        self.put("resume.grpc.tls", Value::Boolean(tls), name);
        if tls {
            for (name, key) in OAUTH {
                if let Some((name, text)) = self.get(name) {
                    self.put(&format!("resume.grpc.oauth.{key}"), Value::Text(text), name);
                }
            }
        }
        true
    }

    /// A variable that is set to something, and what to.
    fn get(&mut self, name: &'static str) -> Option<(&'static str, String)> {
        match self.env.first(&[name])? {
            // Blank is as good as empty.
            (name, Some(text)) => Some((name, text.trim().to_owned())).filter(|(_, text)| !text.is_empty()),
            (name, None) => {
                let wrong = Wrong::new("the value is not UTF-8 text", "write text");
                self.fault("", Place::Variable(name.to_owned()), wrong);
                None
            }
        }
    }

    /// As Go reads it.
    fn flag(&mut self, name: &'static str) -> Option<bool> {
        let (name, text) = self.get(name)?;
        match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => {
                self.fault("", Place::Variable(name.to_owned()), Wrong::new("no such choice", "write true or false"));
                None
            }
        }
    }

    fn fault(&mut self, key: &str, place: Place, Wrong { wrong, remedy }: Wrong) {
        self.faults.push(Fault { key: key.to_owned(), value: None, place, wrong, remedy });
    }

    fn put(&mut self, path: &str, value: Value, variable: &str) {
        let item = item(value, variable);
        let mut table = &mut self.root;
        let mut keys = path.split('.').peekable();
        while let Some(key) = keys.next() {
            let place = item.place.clone();
            if keys.peek().is_none() {
                table.insert(key.to_owned(), Entry { place, item });
                return;
            }
            let inner = table.entry(key.to_owned()).or_insert_with(|| Entry {
                place: place.clone(),
                item: Item { value: Value::Table(Entries::new()), place, raw: None },
            });
            match &mut inner.item.value {
                Value::Table(entries) => table = entries,
                _ => return,
            }
        }
    }
}

fn item(value: Value, variable: &str) -> Item {
    Item { value, place: Place::Variable(variable.to_owned()), raw: None }
}

/// `host:port` or a URL; what it does not say of itself is added.
fn url(text: &str, tls: bool, password: Option<&str>) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some(("redis", rest)) if tls => ("rediss", rest),
        Some((scheme, rest)) => (scheme, rest),
        None if tls => ("rediss", text),
        None => ("redis", text),
    };
    // The variable before what the URL says; a user stays.
    let (login, host) = rest.rsplit_once('@').unwrap_or(("", rest));
    match password {
        Some(password) => {
            let user = login.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:{}@{host}", utf8_percent_encode(password, NON_ALPHANUMERIC))
        }
        None => format!("{scheme}://{rest}"),
    }
}
