use std::fs;
use std::os::unix::fs::PermissionsExt;

use wire::aether_reply::Result as Reply;
use wire::aether_request::Call;
use wire::{FileEventType as Event, WatchRequest};

use crate::support::{Root, Worker};

struct Watcher {
    worker: Worker,
    seen: Vec<(Event, String)>,
}

impl Watcher {
    fn new(root: &Root, path: &str, recursive: bool) -> Self {
        let ask = WatchRequest {
            path: path.into(),
            recursive,
            ..WatchRequest::default()
        };
        let mut watcher = Self {
            worker: root.call(Call::Watch(ask)),
            seen: Vec::new(),
        };
        watcher.until(Event::Ready, "");
        watcher
    }

    /// Takes events up to this one.
    fn until(&mut self, kind: Event, path: &str) {
        while !self.seen.contains(&(kind, path.to_string())) {
            let Reply::Watch(reply) = self.worker.reply() else {
                panic!("{:?}", self.seen)
            };
            for event in reply.events {
                self.seen.push((
                    event.r#type(),
                    String::from_utf8_lossy(&event.path).into_owned(),
                ));
            }
        }
    }

    fn count(&self, kind: Event, path: &str) -> usize {
        self.seen
            .iter()
            .filter(|(k, p)| *k == kind && p == path)
            .count()
    }
}

#[test]
fn each_kind_of_change_is_told() {
    let root = Root::new();
    root.file("d/old", b"x");
    let mut watcher = Watcher::new(&root, "/d", false);
    root.file("d/new\nname", b"contents");
    watcher.until(Event::Created, "new\nname");
    watcher.until(Event::Modified, "new\nname");
    fs::set_permissions(root.at("d/old"), fs::Permissions::from_mode(0o600)).unwrap();
    watcher.until(Event::Attributes, "old");
    fs::rename(root.at("d/old"), root.at("d/moved")).unwrap();
    watcher.until(Event::MovedFrom, "old");
    watcher.until(Event::MovedTo, "moved");
    fs::create_dir(root.at("d/sub")).unwrap();
    root.file("d/sub/f", b"");
    fs::remove_file(root.at("d/moved")).unwrap();
    watcher.until(Event::Removed, "moved");
    assert_eq!(watcher.count(Event::Created, "sub"), 1);
    assert_eq!(watcher.count(Event::Created, "sub/f"), 0);
}

#[test]
fn a_recursive_watch_misses_nothing_in_new_directories() {
    let root = Root::new();
    fs::create_dir_all(root.at("d/there/deep")).unwrap();
    let mut watcher = Watcher::new(&root, "/d", true);
    root.file("d/there/deep/f", b"");
    watcher.until(Event::Created, "there/deep/f");
    // Faster than any watch can be added.
    for i in 0..100 {
        root.file(&format!("d/n{i}/a/b/f"), b"");
    }
    root.file("d/end", b"");
    for i in 0..100 {
        for name in ["", "/a", "/a/b", "/a/b/f"] {
            watcher.until(Event::Created, &format!("n{i}{name}"));
        }
    }
    watcher.until(Event::Created, "end");
    for i in 0..100 {
        for name in ["", "/a", "/a/b", "/a/b/f"] {
            assert_eq!(
                watcher.count(Event::Created, &format!("n{i}{name}")),
                1,
                "n{i}{name}"
            );
        }
    }
}

#[test]
fn a_recursive_watch_follows_a_directory_that_moves() {
    let root = Root::new();
    fs::create_dir_all(root.at("d/a/b")).unwrap();
    fs::create_dir_all(root.at("outside/c")).unwrap();
    let mut watcher = Watcher::new(&root, "/d", true);
    fs::rename(root.at("d/a"), root.at("d/z")).unwrap();
    watcher.until(Event::MovedTo, "z");
    root.file("d/z/b/f", b"");
    watcher.until(Event::Created, "z/b/f");
    fs::rename(root.at("outside/c"), root.at("d/c")).unwrap();
    watcher.until(Event::MovedTo, "c");
    root.file("d/c/f", b"");
    watcher.until(Event::Created, "c/f");
    // What has left is none of ours.
    fs::rename(root.at("d/z"), root.at("outside/z")).unwrap();
    watcher.until(Event::MovedFrom, "z");
    std::thread::sleep(std::time::Duration::from_millis(300));
    root.file("outside/z/b/g", b"");
    root.file("d/end", b"");
    watcher.until(Event::Created, "end");
    assert_eq!(watcher.count(Event::Created, "z/b/g"), 0);
}

#[test]
fn a_watch_ends_with_its_directory_or_its_caller() {
    let root = Root::new();
    fs::create_dir(root.at("d")).unwrap();
    let mut watcher = Watcher::new(&root, "/d", true);
    fs::remove_dir(root.at("d")).unwrap();
    watcher.until(Event::Removed, "");
    watcher.worker.done();

    let mut watcher = Watcher::new(&root, "/", false);
    watcher
        .worker
        .stream
        .shutdown(std::net::Shutdown::Both)
        .unwrap();
    watcher.worker.end();
}

#[test]
fn events_that_are_lost_are_told() {
    let root = Root::new();
    fs::create_dir(root.at("d")).unwrap();
    let mut watcher = Watcher::new(&root, "/d", false);
    // SAFETY: our own child.
    unsafe { libc::kill(watcher.worker.pid, libc::SIGSTOP) };
    for i in 0..9000 {
        let path = root.file("d/f", b"");
        fs::rename(path, root.at(&format!("d/g{}", i % 2))).unwrap();
    }
    // SAFETY: our own child.
    unsafe { libc::kill(watcher.worker.pid, libc::SIGCONT) };
    watcher.until(Event::Overflow, "");
    root.file("d/after", b"");
    watcher.until(Event::Created, "after");
}

#[test]
fn what_is_no_directory_is_not_watched() {
    let root = Root::new();
    root.file("f", b"");
    let reason = |path: &str| {
        let ask = WatchRequest {
            path: path.into(),
            ..WatchRequest::default()
        };
        root.call(Call::Watch(ask)).reason()
    };
    assert_eq!(reason("/f"), "NOT_A_DIRECTORY");
    assert_eq!(reason("/x"), "FILE_NOT_FOUND");
}
