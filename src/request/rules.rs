//! The operator's rules: which traffic may wake a paused sandbox.

use std::time::Duration;

use http::{HeaderValue, Method};

use crate::{
    config::{PathRule, Wake},
    types::Port,
};

/// `[wake]`, but for what is counted over many requests.
pub(crate) struct WakeRules {
    health_probe: bool,
    ignore_paths: Vec<PathRule>,
    ignore_user_agents: Vec<String>,
    /// Whether preflights to sleeping sandboxes are answered here.
    pub(super) answer_preflight: bool,
    /// How long a navigation waits for a wake before it gets a page.
    pub(super) page_after: Option<Duration>,
}

impl From<&Wake> for WakeRules {
    fn from(wake: &Wake) -> Self {
        Self {
            health_probe: wake.health_probe,
            ignore_paths: wake.ignore_paths.clone(),
            ignore_user_agents: wake.ignore_user_agents.clone(),
            answer_preflight: wake.answer_preflight,
            page_after: wake.page_after,
        }
    }
}

/// So much of a `User-Agent` is looked at: real ones are shorter.
const AGENT: usize = 1024;

impl WakeRules {
    /// Whether such a request may wake.
    pub(super) fn admit(&self, method: &Method, port: Port, path: &str, user_agent: Option<&HeaderValue>) -> bool {
        let asks_for_health = port.is_envd() && path == "/health" && matches!(*method, Method::GET | Method::HEAD);
        (self.health_probe || !asks_for_health)
            && !self.ignore_paths.iter().any(|rule| rule.covers(path))
            && !user_agent.is_some_and(|agent| self.ignores(agent))
    }

    fn ignores(&self, user_agent: &HeaderValue) -> bool {
        !self.ignore_user_agents.is_empty() && {
            let agent = user_agent.as_bytes();
            let agent = agent[..agent.len().min(AGENT)].to_ascii_lowercase();
            let says = |words: &String| agent.windows(words.len()).any(|part| part == words.as_bytes());
            self.ignore_user_agents.iter().any(says)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Environment};

    fn rules(text: &str) -> WakeRules {
        let text = format!("catalog.kind = 'static'\nresume.kind = 'none'\n[wake]\n{text}");
        let loaded = Config::load(text.as_bytes(), &Environment::default()).unwrap_or_else(|faults| panic!("{faults}"));
        (&loaded.config.wake).into()
    }

    #[test]
    fn what_the_rules_keep_asleep() {
        let rules = rules(
            "health_probe = false\nignore_paths = ['/favicon.ico', '/.well-known/*']\n\
             ignore_user_agents = ['bot', 'UptimeRobot']",
        );
        for (method, port, path, agent, want) in [
            ("GET", 49983, "/health", "", false),
            ("HEAD", 49983, "/health", "", false),
            ("POST", 49983, "/health", "", true),
            ("GET", 49983, "/healthy", "", true),
            ("GET", 8000, "/health", "", true),
            ("GET", 8000, "/favicon.ico", "", false),
            ("GET", 8000, "/favicon.ico2", "", true),
            ("GET", 8000, "/a/favicon.ico", "", true),
            ("GET", 8000, "/.well-known/security.txt", "", false),
            ("GET", 8000, "/.well-known", "", true),
            ("GET", 8000, "/", "Mozilla/5.0 (compatible; Googlebot/2.1)", false),
            ("GET", 8000, "/", "mozilla/5.0 (uptimerobot/2.0)", false),
            ("GET", 8000, "/", "Mozilla/5.0 (X11; Linux x86_64)", true),
            ("GET", 8000, "/", "bo", true),
        ] {
            let agent = (!agent.is_empty()).then(|| HeaderValue::from_static(agent));
            let method = method.parse().expect("a method");
            let admitted = rules.admit(&method, Port::new(port).expect("a port"), path, agent.as_ref());
            assert_eq!(admitted, want, "{method} {port} {path} {agent:?}");
        }
    }

    #[test]
    fn by_default_everything_wakes() {
        let agent = HeaderValue::from_static("UptimeRobot bot");
        assert!(rules("").admit(&Method::GET, Port::ENVD, "/health", Some(&agent)));
    }
}
