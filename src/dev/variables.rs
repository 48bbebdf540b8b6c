//! What callers want in the environment of programs.

use std::collections::BTreeMap;

/// Why no environment can hold these (environ(7)).
pub(crate) fn environment_fault(environment: &BTreeMap<String, String>) -> Option<&'static str> {
    let bad = |name: &String| name.is_empty() || name.contains(['=', '\0']);
    if environment.keys().any(bad) || environment.values().any(|value| value.contains('\0')) {
        return Some("envVars holds a name or value that no environment can hold");
    }
    None
}
