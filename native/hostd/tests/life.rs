//! Start, run, stop, and a slot used again.

mod common;
use common::Rig;

#[test]
fn a_sandbox_starts_runs_and_stops() {
    let mut rig = Rig::new(4);
    let started = rig.start("one");
    let ran = rig.sh("one", started.slot, "id -u; hostname; cat /etc/hosts; echo hi > /new; cat /new");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("0\nbox\n127.0.0.1 localhost\n127.0.0.1 box\n"), "{ran:?}");
    assert!(ran.stdout.ends_with("hi\n"));
    let stopped = rig.stop("one", false);
    assert!(stopped.existed);
    assert!(stopped.usage.expect("usage").cpu_seconds > 0.0);
    assert!(!rig.stop("one", false).existed, "a second stop does no harm");
}
