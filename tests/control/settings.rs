//! Which adapter settings make, and which they do not.

use std::{collections::BTreeMap, time::Duration};

use client_proxy::{
    config,
    control::{AnyCatalog, AnyResumer, RestCatalog, SetupError, install_tls_provider},
    sandbox::ports::{Catalog as _, Located, Resumer as _, WakeError},
    types::{Node, Secret},
};

use tokio::runtime::Handle;

use super::{
    CONNECT, GET, KEY, PAUSED, id, open,
    scripted_http::{ScriptedHttp, Step},
    url, wake,
};

#[tokio::test]
async fn unfit_settings_are_told_apart() {
    install_tls_provider();
    let make = |text, key| {
        RestCatalog::new(&config::RestCatalog {
            url: url(text),
            api_key: Secret::new(key),
            timeout: Duration::from_secs(1),
            node_pointer: "/nodeIP".into(),
        })
    };
    assert!(matches!(make("mailto:a@b", KEY), Err(SetupError::Url)));
    assert!(matches!(make("ftp://host/", KEY), Err(SetupError::Url)));
    let error = make("http://host/", "secret\nkey").expect_err("not a header");
    assert!(matches!(error, SetupError::ApiKey));
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[tokio::test]
async fn the_configuration_chooses_the_adapter() {
    install_tls_provider();
    let node = Node::new("10.0.0.5").expect("a node");
    let fixed = config::Catalog::Static(BTreeMap::from([(id(), node)]));
    let catalog = AnyCatalog::new(&fixed, &Handle::current()).expect("a catalog");
    assert!(matches!(catalog.locate(&id()).await, Ok(Located::Running(_))));

    let server = ScriptedHttp::start([Step::on(GET).json(200, PAUSED), Step::on(CONNECT).json(409, "{}")]).await;
    let base = url(&format!("http://{}", server.address()));
    let rest = config::Catalog::Rest(config::RestCatalog {
        url: base.clone(),
        api_key: Secret::new(KEY),
        timeout: Duration::from_secs(5),
        node_pointer: "/nodeIP".into(),
    });
    let catalog = AnyCatalog::new(&rest, &Handle::current()).expect("a catalog");
    assert!(matches!(catalog.locate(&id()).await, Ok(Located::Asleep(_))));

    let mut settings = config::Resume {
        resumer: config::Resumer::None,
        hold_timeout: Duration::from_secs(50),
        call_timeout: Duration::from_mins(2),
        max_held: 10,
        max_held_per_sandbox: 10,
        max_held_per_client: 0,
        max_concurrent: 10,
        release_rate: 0,
    };
    assert!(matches!(AnyResumer::new(&settings, &Handle::current()), Ok(AnyResumer::None)));
    settings.resumer = config::Resumer::Rest(config::RestResume {
        url: base,
        api_key: Secret::new(KEY),
        sandbox_timeout: Duration::from_mins(5),
        node_pointer: "/nodeIP".into(),
    });
    let resumer = AnyResumer::new(&settings, &Handle::current()).expect("a resumer");
    let outcome = resumer.resume(&wake(open(), 80, None, None)).await;
    assert!(matches!(outcome, Err(WakeError::Transitioning)), "{outcome:?}");
}
