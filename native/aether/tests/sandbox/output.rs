use std::time::{Duration, Instant};

use wire::*;

use crate::support::*;

#[test]
fn head_and_tail_are_kept_and_the_middle_is_counted() {
    let sandbox = TestSandbox::new(&[]);
    sandbox
        .client()
        .background(
            "long",
            sh("head -c 20000000 /dev/zero | tr '\\0' A; echo END"),
        )
        .unwrap();
    eventually("it ends", || {
        sandbox.client().get("long").unwrap().state == CommandState::Ended as i32
    });
    let ran = sandbox
        .client()
        .attach("long", [0, 0], false)
        .finish()
        .unwrap();
    assert_eq!((ran.code(), ran.outcome.stdout_bytes), (0, 20_000_004));
    assert_eq!(ran.out.len(), 16 << 20);
    assert_eq!(ran.dropped[0], 20_000_004 - (16 << 20));
    assert!(ran.text().ends_with("AEND\n"));
    let ran = sandbox
        .client()
        .attach("long", [9 << 20, 0], false)
        .finish()
        .unwrap();
    assert!(ran.dropped[0] > 0 && ran.text().ends_with("END\n"));
}

#[test]
fn a_small_cap_is_kept_to() {
    let sandbox = TestSandbox::new(&[]);
    let spec = CommandSpec {
        output_cap_bytes: 10,
        ..sh("for i in 0 1 2 3 4 5 6 7 8 9; do echo -n abc$i; done")
    };
    sandbox.client().background("small", spec).unwrap();
    eventually("it ends", || {
        sandbox.client().get("small").unwrap().state == CommandState::Ended as i32
    });
    let ran = sandbox
        .client()
        .attach("small", [0, 0], true)
        .finish()
        .unwrap();
    assert_eq!((ran.text().as_str(), ran.dropped[0]), ("abc0a8abc9", 30));
}

#[test]
fn an_attached_reader_gets_every_byte() {
    let sandbox = TestSandbox::new(&[]);
    let spec = CommandSpec {
        output_cap_bytes: 64 << 20,
        ..sh("seq 1 6000000")
    };
    let ran = sandbox.run(spec);
    assert_eq!(ran.dropped, [0, 0]);
    let mut wanted = Vec::with_capacity(50 << 20);
    for i in 1..=6_000_000 {
        use std::io::Write;
        writeln!(wanted, "{i}").unwrap();
    }
    assert!(ran.out == wanted);
}

#[test]
fn a_cap_does_not_cut_what_an_attached_reader_gets() {
    let sandbox = TestSandbox::new(&[]);
    let ran = sandbox.run(CommandSpec {
        output_cap_bytes: 4096,
        ..sh("head -c 100000000 /dev/zero")
    });
    assert_eq!((ran.out.len(), ran.dropped[0]), (100_000_000, 0));
}

#[test]
fn readers_come_and_go_and_the_others_lose_nothing() {
    let sandbox = TestSandbox::new(&[]);
    for round in 0..20 {
        let id = format!("r{round}");
        let text = "for i in $(seq 1 200); do echo line $i of many; done; sleep 0.02; seq 1 2000";
        let wanted: String = (1..=200)
            .map(|i| format!("line {i} of many\n"))
            .chain((1..=2000).map(|i| format!("{i}\n")))
            .collect();
        sandbox.client().background(&id, sh(text)).unwrap();
        let mut readers: Vec<_> = (0..3)
            .map(|_| sandbox.client().attach(&id, [0, 0], false))
            .collect();
        let mut leaving = readers.remove(round % 3);
        if round % 2 == 0 {
            leaving.step().unwrap();
        }
        drop(leaving);
        for reader in readers {
            assert_eq!(reader.finish().unwrap().text(), wanted);
        }
    }
}

#[test]
fn without_a_reader_the_writer_never_waits() {
    let sandbox = TestSandbox::new(&[]);
    sandbox
        .client()
        .background("yes", sh("timeout 1 yes; echo $?"))
        .unwrap();
    eventually("it ends", || {
        sandbox.client().get("yes").unwrap().state == CommandState::Ended as i32
    });
    let size: u64 = std::fs::read_dir(sandbox.run.join("records"))
        .unwrap()
        .map(|e| e.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size <= 17 << 20, "{size}");
}

#[test]
fn the_oldest_output_goes_when_the_share_is_used_up() {
    let sandbox = TestSandbox::new(&[]);
    for i in 0..6 {
        let ran = sandbox.run_as(
            &format!("o{i}"),
            sh("head -c 15000000 /dev/zero | tr '\\0' B; exit 2"),
        );
        assert_eq!(ran.out.len(), 15_000_000);
    }
    let size: u64 = std::fs::read_dir(sandbox.run.join("records"))
        .unwrap()
        .map(|e| e.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size <= 65 << 20, "{size}");
    let first = sandbox
        .client()
        .attach("o0", [0, 0], false)
        .finish()
        .unwrap();
    assert_eq!(
        (first.out.len(), first.dropped[0], first.code()),
        (0, 15_000_000, 2)
    );
    let last = sandbox
        .client()
        .attach("o5", [0, 0], false)
        .finish()
        .unwrap();
    assert_eq!((last.out.len(), last.dropped[0]), (15_000_000, 0));
}

#[test]
fn a_slow_reader_slows_the_writer_and_is_then_cut_alone() {
    let sandbox = TestSandbox::new(&[]);
    let mut slow = sandbox
        .client()
        .start(
            "flood",
            sh("head -c 30000000 /dev/zero; touch /tmp/written; sleep 60"),
        )
        .unwrap();
    slow.step().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(
        sandbox.sh("test -e /tmp/written").code(),
        1,
        "the writer waits"
    );
    let start = Instant::now();
    while sandbox.sh("test -e /tmp/written").code() != 0 {
        assert!(start.elapsed() < Duration::from_secs(90));
        std::thread::sleep(Duration::from_millis(200));
    }
    let error = loop {
        match slow.step() {
            Ok(more) => assert!(more),
            Err(error) => break error,
        }
    };
    assert_eq!(error.reason, "SLOW_READER");
    sandbox.client().signal("flood", 9, true).unwrap();
    assert_eq!(
        sandbox
            .client()
            .attach("flood", [29_000_000, 0], false)
            .finish()
            .unwrap()
            .out
            .len(),
        1_000_000
    );
}

#[test]
fn a_line_of_a_hundred_megabytes() {
    let sandbox = TestSandbox::new(&[]);
    let ran = sandbox.sh("head -c 100000000 /dev/zero | tr '\\0' x");
    assert!(ran.out.len() == 100_000_000 && ran.out.iter().all(|&b| b == b'x'));
}
