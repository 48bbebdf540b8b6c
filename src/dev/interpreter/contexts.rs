//! The contexts of a sandbox: which there are, and where each of them works.

use std::{
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{
    driver::{Answers, Driver},
    server::Fault,
};
use crate::dev::random::random_name;

/// Each is a process of some tens of megabytes.
const CONTEXTS_MAX: usize = 32;
/// Executions that run or wait for their turn. Their code is in memory.
const EXECUTIONS_MAX: usize = 64;

/// As the SDKs read it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Context {
    id: String,
    language: &'static str,
    /// As the sandbox's people see it.
    cwd: PathBuf,
}

pub(super) struct Contexts {
    driver: Arc<Driver>,
    folder: PathBuf,
    home: PathBuf,
    known: Mutex<Known>,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct Known {
    /// The oldest first.
    all: Vec<Context>,
    /// The one for code that names none.
    default: Option<String>,
}

impl Contexts {
    pub(super) fn new(driver: Arc<Driver>, folder: PathBuf, home: PathBuf) -> Self {
        let places = Arc::new(Semaphore::new(EXECUTIONS_MAX));
        Self { driver, folder, home, known: Mutex::default(), places }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn list(&self) -> Vec<Context> {
        self.known().all.clone()
    }

    /// Has the default context's kernel started, and waits for nothing.
    pub(super) fn start_default(self: &Arc<Self>) {
        let this = self.clone();
        tokio::spawn(async move {
            if let Ok(Some(mut starting)) = this.default_context().map(|(_, starting)| starting)
                && let Err(fault) = outcome(&mut starting).await
            {
                eprintln!("the code interpreter: {}", fault.text);
            }
        });
    }

    /// Its name, and the start of it if it was not there.
    fn default_context(&self) -> Result<(String, Option<Answers>), Fault> {
        let mut known = self.known();
        if let Some(id) = &known.default {
            return Ok((id.clone(), None));
        }
        let place = Place { shown: Path::new("/").join(&self.home), real: self.folder.join(&self.home) };
        let (context, starting) = self.add(&mut known, place)?;
        known.default = Some(context.id.clone());
        Ok((context.id, Some(starting)))
    }

    fn add(&self, known: &mut Known, place: Place) -> Result<(Context, Answers), Fault> {
        if known.all.len() >= CONTEXTS_MAX {
            let text = format!("{CONTEXTS_MAX} contexts are the most in one sandbox: remove one first");
            return Err(Fault::new(StatusCode::TOO_MANY_REQUESTS, text));
        }
        let id = random_name(20).map_err(|error| Fault::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let context = Context { id, language: "python", cwd: place.shown };
        known.all.push(context.clone());
        // Under the lock: whoever finds it here calls after this call.
        let order = json!({ "do": "create", "context": context.id, "cwd": place.real });
        Ok((context, self.driver.call(order, None)))
    }

    /// Returns when it can run code.
    pub(super) async fn create(&self, cwd: Option<&str>) -> Result<Context, Fault> {
        let place = match cwd {
            Some(cwd) => place_of(&self.folder, &self.home, cwd)?,
            None => Place { shown: Path::new("/").join(&self.home), real: self.folder.join(&self.home) },
        };
        let (context, mut starting) = self.add(&mut self.known(), place)?;
        if let Err(fault) = outcome(&mut starting).await {
            let _ = self.remove(&context.id).await;
            return Err(fault);
        }
        Ok(context)
    }

    /// Waits its turn, then runs.
    pub(super) fn execute(&self, id: Option<&str>, code: &str, variables: &Value) -> Result<Answers, Fault> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| {
            let text = format!("{EXECUTIONS_MAX} executions run or wait in this sandbox: try again later");
            Fault::new(StatusCode::TOO_MANY_REQUESTS, text)
        })?;
        let id = match id {
            Some(id) => {
                self.known().find(id)?;
                id.to_owned()
            }
            // Whoever starts it waits for it as everybody does, in the context's queue.
            None => self.default_context()?.0,
        };
        let order = json!({ "do": "execute", "context": id, "code": code, "env_vars": variables });
        Ok(self.driver.call(order, Some(place)))
    }

    /// Returns when its new kernel can run code.
    pub(super) async fn restart(&self, id: &str) -> Result<(), Fault> {
        let mut restarting = {
            let known = self.known();
            known.find(id)?;
            self.driver.call(json!({ "do": "restart", "context": id }), None)
        };
        outcome(&mut restarting).await
    }

    pub(super) async fn remove(&self, id: &str) -> Result<(), Fault> {
        let mut removing = {
            let mut known = self.known();
            known.find(id)?;
            known.all.retain(|context| context.id != id);
            known.default.take_if(|default| default == id);
            self.driver.call(json!({ "do": "remove", "context": id }), None)
        };
        outcome(&mut removing).await
    }
}

impl Known {
    fn find(&self, id: &str) -> Result<(), Fault> {
        let found = self.all.iter().any(|context| context.id == id);
        // What is asked for is not repeated: it may be anything.
        found.then_some(()).ok_or_else(|| Fault::new(StatusCode::NOT_FOUND, "the context was not found"))
    }
}

/// An answer that has a line only if something is wrong.
async fn outcome(answers: &mut Answers) -> Result<(), Fault> {
    let wrong = |text: String| Fault::new(StatusCode::INTERNAL_SERVER_ERROR, text);
    let mut outcome = Ok(());
    while let Some(line) = answers.next().await.map_err(|lost| wrong(lost.to_string()))? {
        let told: Value = serde_json::from_slice(&line).unwrap_or_default();
        outcome = Err(wrong(told["fault"].as_str().unwrap_or("the kernel has not started").to_owned()));
    }
    outcome
}

/// A folder, as the sandbox's people name it and as the machine does.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    shown: PathBuf,
    real: PathBuf,
}

/// Where `cwd` is in the file system of the sandbox, whose root is `folder`; it must be there.
fn place_of(folder: &Path, home: &Path, cwd: &str) -> Result<Place, Fault> {
    let mut inside = PathBuf::new();
    if !cwd.starts_with('/') {
        inside.push(home);
    }
    for part in Path::new(cwd).components() {
        match part {
            Component::Normal(name) => inside.push(name),
            Component::ParentDir => {
                inside.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let real = folder.canonicalize().and_then(|root| {
        let real = root.join(&inside).canonicalize()?;
        if real.is_dir() && real.starts_with(&root) { Ok(real) } else { Err(std::io::ErrorKind::NotADirectory.into()) }
    });
    // JavaScript's SDK shows what is said only with this status.
    let missing = |_| Fault::new(StatusCode::NOT_FOUND, "cwd is no folder of the sandbox's file system");
    Ok(Place { shown: Path::new("/").join(inside), real: real.map_err(missing)? })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_context_works_below_the_sandboxs_root() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let home = Path::new("home/user");
        fs::create_dir_all(root.join("home/user/data")).expect("created");
        fs::write(root.join("home/user/file"), "").expect("written");
        symlink("/", root.join("home/user/out")).expect("a link");
        for (cwd, inside) in [
            ("/home/user/data", "home/user/data"),
            ("data", "home/user/data"),
            ("", "home/user"),
            ("/", ""),
            ("/../../home", "home"),
        ] {
            let place = place_of(&root, home, cwd).expect(cwd);
            assert_eq!(place, Place { shown: Path::new("/").join(inside), real: root.join(inside) }, "{cwd}");
        }
        for bad in ["/nope", "file", "out/etc", "/etc"] {
            assert_eq!(place_of(&root, home, bad).expect_err(bad).status, StatusCode::NOT_FOUND, "{bad}");
        }
    }
}
