use super::*;

fn watch(folder: &Path) -> Watch {
    let root = Arc::new(Root::new(folder).expect("a root"));
    let top = root.place("/", None).expect("a place");
    Watch::new(root, top, true, false).expect("a watch")
}

/// Told until this was created.
async fn created_until(mut watch: Watch, last: &str) -> Vec<String> {
    let mut created = Vec::new();
    while created.last().is_none_or(|name| name != last) {
        let (events, same) = watch.next().await.expect("news");
        created.extend(events.into_iter().filter(|event| event.r#type == CREATE).map(|event| event.name));
        watch = same;
    }
    created
}

#[tokio::test]
async fn what_is_found_in_a_new_directory_and_in_the_queue_is_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (new, mut watch) = (folder.path().join("new"), watch(folder.path()));
    std::fs::create_dir(&new).expect("made");
    // As if all that follows came between this and the look into the directory.
    watch.add(Path::new("new"), &mut Vec::new()).expect("watched");
    std::fs::create_dir(new.join("in")).expect("made");
    for file in ["a", "in/b", "c"] {
        std::fs::write(new.join(file), "x").expect("written");
    }
    std::fs::remove_file(new.join("c")).expect("removed");
    std::fs::write(new.join("c"), "x").expect("written");
    let (events, watch) = watch.next().await.expect("news");
    let mut created: Vec<_> = events.into_iter().filter(|event| event.r#type == CREATE).collect();
    created.sort_by(|one, other| one.name.cmp(&other.name));
    let created: Vec<_> = created.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(created, ["new", "new/a", "new/c", "new/c", "new/in", "new/in/b"], "c was removed between");
    // What comes later takes the place of what was found: that is news.
    std::fs::rename(new.join("c"), new.join("a")).expect("moved");
    assert_eq!(created_until(watch, "new/a").await, ["new/a"]);
}

#[tokio::test]
async fn a_directory_in_the_place_of_one_that_was_found_is_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path().join("top");
    for directory in ["top/new/d", "other"] {
        std::fs::create_dir_all(folder.path().join(directory)).expect("made");
    }
    let mut watch = watch(&top);
    // As if it was found, and this came before that was noted.
    std::fs::rename(folder.path().join("other"), top.join("new/d")).expect("moved");
    watch.keep_found(&["new/d".into()]);
    std::fs::write(top.join("end"), "x").expect("written");
    let (_, watch) = watch.next().await.expect("news");
    for file in ["new/d/in", "end of all"] {
        std::fs::write(top.join(file), "x").expect("written");
    }
    assert_eq!(created_until(watch, "end of all").await, ["new/d/in", "end of all"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_that_are_filled_at_once_are_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (top, watch) = (folder.path().to_owned(), watch(folder.path()));
    let filling = std::thread::spawn(move || {
        for number in 0..200 {
            let new = top.join(number.to_string());
            for name in ["a", "b", "c/d", "c/e"] {
                std::fs::create_dir_all(new.join(name)).expect("made");
            }
        }
        std::fs::write(top.join("end"), "x").expect("written");
    });
    let mut created = created_until(watch, "end").await;
    filling.join().expect("no panic");
    created.sort();
    let all = created.len();
    created.dedup();
    assert_eq!((all, created.len()), (200 * 6 + 1, 200 * 6 + 1));
}

/// Nobody reads while more happens than the kernel keeps (`fs.inotify.max_queued_events`).
#[tokio::test]
async fn more_changes_than_the_kernel_keeps_end_the_watch() {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("Linux");
    let limit: usize = limit.trim().parse().expect("a number");
    let folder = tempfile::tempdir().expect("a folder");
    let root = Arc::new(Root::new(folder.path()).expect("a root"));
    let top = root.place("/", None).expect("a place");
    let mut watch = Watch::new(root, top, false, false).expect("a watch");
    for number in 0..=limit {
        let name = folder.path().join((number % 2).to_string());
        std::fs::write(&name, "x").expect("written");
        std::fs::remove_file(&name).expect("removed");
    }
    let fault = loop {
        match watch.next().await {
            Ok((events, same)) => {
                assert!(!events.is_empty());
                watch = same;
            }
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.code, Code::ResourceExhausted);
}
