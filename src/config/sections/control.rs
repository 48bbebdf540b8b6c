//! `[catalog]`, `[cache]` and `[resume]`.

use super::{MANY, kinds};
use crate::{
    config::{Cache, Catalog, GrpcResume, OAuth, RedisCatalog, RestCatalog, RestResume, Resume, Resumer, table::Table},
    types::Secret,
};

/// What stands in for the API's key where none is written.
const API_KEY: &str = "${E2B_API_KEY}";

/// `resume.kind`
#[derive(Clone, Copy, PartialEq)]
enum Waker {
    Nobody,
    Grpc,
    Rest,
}

/// `catalog.kind`
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Redis,
    Rest,
    Static,
}

pub(super) fn read(root: &mut Table<'_>) -> (Catalog, Cache, Resume) {
    let catalog_table = root.table("catalog", true);
    let cache = cache(root.table("cache", true));
    let mut resume_table = root.table("resume", true);
    // First of all: the wake reads its answers with the catalog's pointer.
    let waker = resume_table.choice("kind", &[("grpc", Waker::Grpc), ("rest", Waker::Rest), ("none", Waker::Nobody)]);
    let (catalog, node_pointer) = catalog(catalog_table, waker);
    (catalog, cache, resume(resume_table, waker, node_pointer))
}

fn catalog(mut table: Table<'_>, waker: Waker) -> (Catalog, String) {
    let kinds = [("redis", Source::Redis), ("rest", Source::Rest), ("static", Source::Static)];
    let source = table.choice("kind", &kinds);
    let redis = redis(table.table("redis", source == Source::Redis));
    let nodes = table.pairs("static", source == Source::Static, kinds::placement);
    let mut rest = table.table("rest", source == Source::Rest);
    let url = rest.text("url", "http://127.0.0.1:3000", kinds::url);
    let api_key = rest.secret("api_key", API_KEY, true);
    let timeout = rest.text("timeout", "5s", kinds::positive);
    rest.live |= waker == Waker::Rest;
    let node_pointer = rest.text("node_pointer", "/nodeIP", kinds::pointer);
    let catalog = match source {
        Source::Redis => Catalog::Redis(redis),
        Source::Static => Catalog::Static(nodes),
        Source::Rest => {
            Catalog::Rest(RestCatalog { url, api_key: or_faulty(api_key), timeout, node_pointer: node_pointer.clone() })
        }
    };
    (catalog, node_pointer)
}

fn redis(mut table: Table<'_>) -> RedisCatalog {
    RedisCatalog {
        urls: table.list("urls", &["redis://127.0.0.1:6379"], kinds::redis),
        cluster: table.boolean("cluster", false),
        ca: table.text("ca_base64", "", kinds::authorities),
        timeout: table.text("timeout", "1s", kinds::positive),
        push: table.boolean("push", true),
    }
}

fn cache(mut table: Table<'_>) -> Cache {
    Cache {
        ttl: table.text("ttl", "1s", kinds::positive),
        ttl_with_push: table.text("ttl_with_push", "60s", kinds::positive),
        stale_if_error: table.text("stale_if_error", "60s", kinds::duration),
        negative_ttl: table.text("negative_ttl", "1s", kinds::positive),
        max_entries: table.integer("max_entries", 1_000_000, 1..=MANY),
    }
}

fn resume(mut table: Table<'_>, waker: Waker, node_pointer: String) -> Resume {
    let hold_timeout = table.text("hold_timeout", "50s", kinds::positive);
    let call_timeout = table.text("call_timeout", "120s", kinds::positive);
    let max_held = table.integer("max_held", 10_000, 1..=MANY);
    let max_held_per_sandbox = table.integer("max_held_per_sandbox", 2000, 1..=MANY);
    let max_held_per_client = table.integer("max_held_per_client", 0, 0..=MANY);
    let max_concurrent = table.integer("max_concurrent", 256, 1..=MANY);
    let release_rate = table.integer("release_rate", 0, 0..=1_000_000);
    let grpc = grpc(table.table("grpc", waker == Waker::Grpc));
    let mut rest = table.table("rest", waker == Waker::Rest);
    let rest = RestResume {
        url: rest.text("url", "http://127.0.0.1:3000", kinds::url),
        api_key: or_faulty(rest.secret("api_key", API_KEY, true)),
        sandbox_timeout: rest.text("sandbox_timeout", "300s", kinds::time_to_live),
        node_pointer,
    };
    let resumer = match waker {
        Waker::Nobody => Resumer::None,
        Waker::Grpc => Resumer::Grpc(grpc),
        Waker::Rest => Resumer::Rest(rest),
    };
    Resume {
        resumer,
        hold_timeout,
        call_timeout,
        max_held,
        max_held_per_sandbox,
        max_held_per_client,
        max_concurrent,
        release_rate,
    }
}

fn grpc(mut table: Table<'_>) -> GrpcResume {
    GrpcResume {
        address: table.text("address", "127.0.0.1:5009", kinds::authority),
        tls: table.boolean("tls", false),
        ca: table.text("ca_base64", "", kinds::authorities),
        oauth: oauth(table.table("oauth", table.live)),
    }
}

/// All three or none.
fn oauth(mut table: Table<'_>) -> Option<OAuth> {
    let client_id = table.text("client_id", "", kinds::visible);
    let client_secret = table.secret("client_secret", "", false);
    let token_url = table.text("token_url", "", kinds::token_url);
    let given = [client_id.is_some(), client_secret.is_some(), token_url.is_some()];
    if given.contains(&true) && given.contains(&false) {
        table.fault("client_id, client_secret and token_url belong together", "write all three, or none");
    }
    Some(OAuth { client_id: client_id?, client_secret: client_secret?, token_url: token_url? })
}

/// A required secret is missing only together with a fault, which keeps the value from use.
fn or_faulty(secret: Option<Secret>) -> Secret {
    secret.unwrap_or_else(|| Secret::new(""))
}
