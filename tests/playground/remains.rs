//! Whatever programs have done to be in the way, it goes with what it is in.

use serde_json::json;

use crate::house::House;

/// Deeper than any path is long.
const DEEP: &str = "python3 -c \"import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(20000)]\"";

#[tokio::test(flavor = "multi_thread")]
async fn folders_of_any_depth_go_by_a_call_and_with_their_sandbox() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    let folder = sandbox.folder();
    house.run(&sandbox, &format!("{DEEP} && mkdir -p no && touch no/file && chmod 000 no")).await;
    for name in ["d", "no"] {
        house.ask(&sandbox, "Remove", json!({ "path": name })).await;
        assert_eq!(house.refused(&sandbox, "Stat", json!({ "path": name })).await, (404, "not_found".to_owned()));
    }
    house.run(&sandbox, &format!("{DEEP}; chmod 000 /tmp /home/user /home")).await;
    assert_eq!(sandbox.kill().await.status, 204);
    assert!(!folder.exists());
    house.end().await;
}
