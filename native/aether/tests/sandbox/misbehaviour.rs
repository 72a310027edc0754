//! What agents do to their surroundings: the sandbox gets the ordinary Linux answer, and goes on.

use std::io::Write;
use std::time::Instant;

use wire::aether_request::Call;
use wire::frame::FrameHeader;
use wire::*;

use crate::support::*;

#[test]
fn kill_all_ends_all_but_init() {
    let sandbox = TestSandbox::new(&[]);
    sandbox
        .client()
        .background("victim", sh("sleep 4720"))
        .unwrap();
    let ran = sandbox.sh("kill -9 -1; echo alive");
    assert!(ran.code() == 0 && ran.text() == "alive\n", "{ran:?}");
    let ran = sandbox
        .client()
        .attach("victim", [0, 0], false)
        .finish()
        .unwrap();
    assert_eq!(
        (ran.outcome.signal.as_str(), ran.outcome.oom_killed),
        ("SIGKILL", false)
    );
    assert_eq!(
        sandbox
            .sh("kill -9 1; kill -TERM 1; kill -SEGV 1; echo $?")
            .text(),
        "0\n"
    );
    assert_eq!(sandbox.sh("echo alive").text(), "alive\n");
}

#[test]
fn a_fork_bomb() {
    let sandbox = TestSandbox::new(&["pids=64"]);
    let spec = CommandSpec {
        timeout_ms: 20_000,
        ..sh("b() { b | b & }; b; sleep 100")
    };
    sandbox.client().background("bomb", spec).unwrap();
    let mut refused = None;
    let end = Instant::now() + std::time::Duration::from_secs(15);
    while refused.is_none() && Instant::now() < end {
        let ran = sandbox.sh("true");
        if ran.outcome.exit_code == Some(126) {
            refused = Some(ran);
        }
    }
    let ran = refused.expect("no more processes");
    assert!(
        ran.errors()
            .starts_with("bash: fork: Resource temporarily unavailable"),
        "{ran:?}"
    );
    assert_eq!(ran.outcome.limit_hit, [LimitHit::Pids as i32]);
    sandbox.client().signal("bomb", 9, true).unwrap();
    let bomb = sandbox
        .client()
        .attach("bomb", [0, 0], false)
        .finish()
        .unwrap();
    assert!(bomb.outcome.limit_hit.contains(&(LimitHit::Pids as i32)));
    eventually("all is gone", || {
        sandbox.sh("true").outcome.exit_code == Some(0)
    });
}

#[test]
fn a_memory_hog() {
    let sandbox = TestSandbox::new(&["memory=67108864"]);
    for _ in 0..3 {
        let ran = sandbox.run(argv(&[
            "python3",
            "-c",
            "x = bytearray(500_000_000); print(len(x))",
        ]));
        assert_eq!(ran.outcome.signal, "SIGKILL");
        assert!(
            ran.outcome.oom_killed && ran.outcome.limit_hit == [LimitHit::Memory as i32],
            "{ran:?}"
        );
    }
    let ran = sandbox.sh("for i in 1 2 3 4 5 6 7 8; do python3 -c 'x = bytearray(30_000_000); import time; time.sleep(1)' & done; wait; echo done");
    assert!(
        ran.outcome.limit_hit.contains(&(LimitHit::Memory as i32)),
        "{ran:?}"
    );
    assert_eq!(sandbox.sh("echo alive").text(), "alive\n");
}

#[test]
fn ten_thousand_files_and_a_full_disk() {
    let sandbox = TestSandbox::new(&[]);
    let ran = sandbox.sh("python3 -c '\nl=[]\ntry:\n  for i in range(100000): l.append(open(\"/dev/null\"))\nexcept OSError as e: print(e.errno)'");
    assert_eq!(ran.text(), "24\n");
    let ran = sandbox.sh("head -c 400000000 /dev/zero > /tmp/fill; echo $?; echo alive");
    assert_eq!(ran.text(), "1\nalive\n");
    assert_eq!(sandbox.sh("echo full; echo err >&2").text(), "full\n");
}

#[test]
fn an_overwritten_bash_has_no_say() {
    let sandbox = TestSandbox::new(&[]);
    let ran = sandbox.sh("rm /bin/bash /bin/sh; printf '#!/bin/cat\\nforged' > /bin/bash; cp /bin/bash /bin/sh; chmod +x /bin/bash /bin/sh; echo 'echo forged' > /root/.bashrc");
    assert_eq!(ran.code(), 0, "{ran:?}");
    assert_eq!(sandbox.sh("echo true one").text(), "true one\n");
    sandbox.client().open_session("s").unwrap();
    let spec = CommandSpec {
        session_id: "s".into(),
        ..sh("echo true two")
    };
    assert_eq!(sandbox.run(spec).text(), "true two\n");
}

#[test]
fn a_startup_file_in_the_environment_has_no_say() {
    let sandbox = TestSandbox::new(&[]);
    let text = "echo 'echo forged' > /root/evil; mkdir -p /usr/share/bashdb; cp /root/evil /usr/share/bashdb/bashdb-main.inc; \
                echo 'echo script $BASH_ENV' > /root/plain; chmod +x /root/plain";
    assert_eq!(sandbox.sh(text).code(), 0);
    let env: std::collections::BTreeMap<String, String> = [
        ("BASH_ENV", "/root/evil"),
        ("ENV", "/root/evil"),
        ("BASHOPTS", "extdebug:extglob"),
    ]
    .map(|(name, value)| (name.to_string(), value.to_string()))
    .into();
    let with_env = |spec: CommandSpec| CommandSpec {
        env: env.clone(),
        ..spec
    };
    let long = format!("echo one $BASH_ENV $LINENO {}", " ".repeat(200_000));
    let ran = sandbox.run(with_env(sh(&long)));
    assert_eq!(ran.text(), "one /root/evil 1\n", "{}", ran.errors());
    // The image's own bash is the agent's; its children get the environment as it was given.
    let ran = sandbox.run(with_env(sh(
        "shopt -q extglob; echo $?; env | grep -c -e __DSEC; bash -c 'echo child'",
    )));
    assert_eq!(ran.text(), "0\n0\nforged\nchild\n", "{}", ran.errors());
    let ran = sandbox.run(with_env(argv(&["/root/plain"])));
    assert_eq!(ran.text(), "script\n", "{}", ran.errors());
    sandbox.configure(AetherConfigure {
        env: env.clone(),
        user: "0".into(),
        ..Default::default()
    });
    sandbox.client().open_session("s").unwrap();
    let call = |text: &str| {
        sandbox.run(CommandSpec {
            session_id: "s".into(),
            ..sh(text)
        })
    };
    assert_eq!(call("echo two $BASH_ENV").text(), "two /root/evil\n");
    assert_eq!(call("exit 3").code(), 3);
    assert_eq!(call("echo three; bash -c true").text(), "three\nforged\n");
}

#[test]
fn an_agent_that_looks_for_ours_gets_nothing() {
    let sandbox = TestSandbox::new(&[]);
    let spy = r#"
import os, ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
found = set()
me = os.getpid()
end = time.time() + 4
while time.time() < end:
    for name in os.listdir('/proc'):
        if not name.isdigit() or int(name) == me: continue
        pid = int(name)
        try: exe = os.readlink(f'/proc/{pid}/exe')
        except OSError: exe = None
        if exe and 'sandbox' in exe: found.add('exe ' + exe)
        try:
            for fd in os.listdir(f'/proc/{pid}/fd'):
                target = os.readlink(f'/proc/{pid}/fd/{fd}')
                if pid == 1 or 'aether' in target or 'memfd:order' in target or 'anon_inode' in target or '/sys/fs/cgroup' in target or 'records' in target: found.add(f'fd {pid} {target}')
        except OSError: pass
        try:
            os.listdir(f'/proc/{pid}/root/')
            if pid == 1: found.add('root of init')
        except OSError: pass
        try:
            if b'sandbox' in open(f'/proc/{pid}/maps','rb').read(): found.add('maps')
        except OSError: pass
        if pid == 1 and libc.ptrace(16, pid, 0, 0) == 0: found.add('traced init')
print(sorted(found))
"#;
    let mut watching = sandbox
        .client()
        .start(
            "spy",
            CommandSpec {
                ..argv(&["python3", "-c", spy])
            },
        )
        .unwrap();
    let client = sandbox.client();
    let end = Instant::now() + std::time::Duration::from_secs(3);
    drop(client);
    while Instant::now() < end {
        assert_eq!(sandbox.run(argv(&["/bin/true"])).code(), 0);
    }
    while watching.step().unwrap() {}
    assert_eq!(watching.ran.text(), "[]\n", "{:?}", watching.ran);
}

#[test]
fn children_have_no_more_than_they_should() {
    let sandbox = TestSandbox::new(&[]);
    let text = "grep -E '^(Cap(Inh|Prm|Bnd|Amb)|NoNewPrivs|Seccomp|SigBlk|SigIgn):' /proc/self/status; cat /proc/self/oom_score_adj; ls /proc/self/fd | tr '\\n' ' '";
    let ran = sandbox.sh(text);
    let caps = "00000000a80425fb";
    let zero = "0000000000000000";
    assert_eq!(
        ran.text(),
        format!("SigBlk:\t{zero}\nSigIgn:\t{zero}\nCapInh:\t{zero}\nCapPrm:\t{caps}\nCapBnd:\t{caps}\nCapAmb:\t{zero}\nNoNewPrivs:\t0\nSeccomp:\t2\n500\n0 1 2 3 ")
    );
    let ann = CommandSpec {
        user: "ann".into(),
        ..sh("grep -E '^Cap(Prm|Bnd)' /proc/self/status")
    };
    assert_eq!(
        sandbox.run(ann).text(),
        format!("CapPrm:\t{zero}\nCapBnd:\t{caps}\n")
    );
    let keyctl = "import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.syscall(250, 0, -3, 0), ctypes.get_errno())";
    assert_eq!(
        sandbox.run(argv(&["python3", "-c", keyctl])).text(),
        "-1 1\n"
    );
    assert_eq!(
        sandbox
            .sh("ps -eo pid= | head -1; ps -o sid=,tty= $$ | tr -d ' '")
            .text()
            .lines()
            .next()
            .unwrap()
            .trim(),
        "1"
    );
}

#[test]
fn peers_that_break_the_wire_are_dropped_and_others_go_on() {
    let sandbox = TestSandbox::new(&[]);
    for bytes in [
        &[255u8; 8][..],
        &[0, 0, 0, 1, 7, 0, 0, 0, 0],
        &[0, 0, 0, 4, 0, 0, 0, 0, 255, 255, 255, 255],
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut client = sandbox.client();
        client.stream.write_all(bytes).unwrap();
        assert!(client.frame().is_err(), "closed");
    }
    let mut client = Client {
        stream: sandbox.connect(),
        next: 0,
    };
    assert_eq!(
        client.call(Call::Ping(AetherPing {})).unwrap_err().reason,
        "INVALID_ARGUMENT"
    );
    let hello = |min_version, max_version, sandbox_id: &str| {
        Call::Hello(AetherHello {
            min_version,
            max_version,
            sandbox_id: sandbox_id.into(),
        })
    };
    assert_eq!(
        client.call(hello(1, 1, "another")).unwrap_err().reason,
        "WRONG_SANDBOX"
    );
    assert_eq!(
        client.call(hello(7, 9, &sandbox.name)).unwrap_err().reason,
        "VERSION_UNSUPPORTED"
    );
    let mut client = sandbox.client();
    client
        .stream
        .write_all(&FrameHeader::new(0, 100).encode())
        .unwrap();
    client.stream.write_all(b"half").unwrap();
    drop(client);
    assert_eq!(sandbox.sh("echo alive").text(), "alive\n");
}

#[test]
fn readers_hear_of_the_end_of_init() {
    let sandbox = TestSandbox::new(&[]);
    let mut reader = sandbox
        .client()
        .start("long", sh("echo here; sleep 4721"))
        .unwrap();
    reader.until("here\n");
    let init = sandbox.hello().init_pid;
    // SAFETY: plain call; the pid is that of this test's own init, which is not reaped before its aether ends.
    unsafe { libc::kill(init, libc::SIGKILL) };
    assert_eq!(reader.step().unwrap_err().reason, "SANDBOX_LOST");
    assert!(reader.client.frame().is_err());
}

#[test]
fn while_the_edge_is_away_everything_goes_on() {
    let sandbox = TestSandbox::new(&[]);
    let mut reader = sandbox
        .client()
        .start(
            "count",
            sh("for i in $(seq 1 50); do echo $i; sleep 0.02; done; exit 9"),
        )
        .unwrap();
    reader.until("3\n");
    let at = [reader.ran.out.len() as u64, 0];
    let first = reader.ran.text();
    drop(reader);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(sandbox.hello().running_commands, 1);
    let rest = sandbox
        .client()
        .attach("count", at, false)
        .finish()
        .unwrap();
    let wanted: String = (1..=50).map(|i| format!("{i}\n")).collect();
    assert_eq!((first + &rest.text(), rest.code()), (wanted, 9));
    let hello = sandbox.hello();
    assert!(
        hello.running_commands == 0 && hello.aether_start_time > 0 && hello.init_start_time > 0
    );
}

#[test]
fn files_through_a_worker() {
    let sandbox = TestSandbox::new(&[]);
    let mut client = sandbox.client();
    let stat = |path: &[u8]| {
        Call::Stat(StatRequest {
            path: path.to_vec(),
            ..Default::default()
        })
    };
    match client.call(stat(b"/etc/passwd")).unwrap() {
        aether_reply::Result::Stat(reply) => assert!(reply.file.unwrap().size_bytes > 0),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        client.call(stat(b"/none")).unwrap_err().reason,
        "FILE_NOT_FOUND"
    );
    assert_eq!(
        client.call(stat(b"passwd")).unwrap_err().reason,
        "FILE_NOT_FOUND"
    );
    let read = AetherReadFile {
        path: b"/etc/hosts".to_vec(),
        user: "ann".into(),
        ..Default::default()
    };
    assert!(matches!(
        client.call(Call::ReadFile(read)).unwrap(),
        aether_reply::Result::Stat(_)
    ));
    assert_eq!(
        client.frame().unwrap(),
        (1, b"127.0.0.1 localhost\n".to_vec())
    );
    let mut client = sandbox.client();
    let write = AetherWriteFile {
        path: b"/home/ann/new".to_vec(),
        user: "ann".into(),
        ..Default::default()
    };
    client.send(Call::WriteFile(write));
    let mut frames = FrameHeader::new(1, 5).encode().to_vec();
    frames.extend_from_slice(b"hello");
    frames.extend_from_slice(&FrameHeader::new(1, 0).encode());
    client.stream.write_all(&frames).unwrap();
    assert!(matches!(
        client.reply().unwrap(),
        aether_reply::Result::Done(_)
    ));
    assert_eq!(
        sandbox
            .sh("cat /home/ann/new; stat -c ' %U %a' /home/ann/new")
            .text(),
        "hello ann 644\n"
    );
    let write = AetherWriteFile {
        path: b"/etc/new".to_vec(),
        user: "ann".into(),
        ..Default::default()
    };
    let mut client = sandbox.client();
    client.send(Call::WriteFile(write));
    client.stream.write_all(&frames).unwrap();
    assert_eq!(client.reply().unwrap_err().reason, "FILE_PERMISSION");
    let bad = Call::Stat(StatRequest {
        path: b"/".to_vec(),
        user: "nobody-here".into(),
        ..Default::default()
    });
    assert_eq!(
        sandbox.client().call(bad).unwrap_err().reason,
        "INVALID_USER"
    );
}
