use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wire::aether_request::Call;
use wire::*;

use crate::support::*;

#[test]
fn a_command_gives_its_output_and_code() {
    let sandbox = TestSandbox::new(&[]);
    let ran = sandbox.sh("echo out; echo err >&2; exit 5");
    assert_eq!(
        (ran.text().as_str(), ran.errors().as_str(), ran.code()),
        ("out\n", "err\n", 5)
    );
    assert_eq!(sandbox.run(argv(&["/bin/true"])).code(), 0);
    assert_eq!(sandbox.sh("exec sh -c 'exit 6'").code(), 6);
    assert_eq!(
        sandbox
            .sh(r"printf 'a\n\nb\n\n\nc\n'; printf 'x\r\ny\r'")
            .out,
        b"a\n\nb\n\n\nc\nx\r\ny\r"
    );
    assert_eq!(
        sandbox
            .sh(r"printf '\303'; sleep 0.05; printf '\251\377\0z'")
            .out,
        b"\xc3\xa9\xff\0z"
    );
    let ran = sandbox.sh("kill -TERM $$");
    assert_eq!(
        (ran.outcome.exit_code, ran.outcome.signal.as_str()),
        (None, "SIGTERM")
    );
    assert!(
        ran.outcome.cpu_time_ms.is_some()
            && ran.outcome.peak_memory_bytes.is_some_and(|bytes| bytes > 0)
    );
}

#[test]
fn late_output_is_never_lost() {
    let sandbox = TestSandbox::new(&[]);
    for _ in 0..200 {
        let ran = sandbox.sh("echo late");
        assert_eq!((ran.text().as_str(), ran.code()), ("late\n", 0));
    }
}

#[test]
fn what_cannot_run_is_a_result() {
    let sandbox = TestSandbox::new(&[]);
    let ran = sandbox.run(argv(&["nosuch"]));
    assert_eq!(
        (ran.code(), ran.errors().as_str()),
        (127, "bash: nosuch: command not found\n")
    );
    assert_eq!(sandbox.run(argv(&["/no/such"])).code(), 127);
    let ran = sandbox.run(argv(&["/etc/passwd"]));
    assert_eq!(
        (ran.code(), ran.errors().as_str()),
        (126, "bash: /etc/passwd: Permission denied\n")
    );
    assert_eq!(sandbox.run(argv(&["/tmp"])).code(), 126);
    let ran = sandbox.sh("printf '#!/no/interpreter\\n' > /tmp/s; printf 'echo plain $1' > /tmp/p; chmod +x /tmp/s /tmp/p; cd /tmp");
    assert_eq!(ran.code(), 0);
    assert_eq!(sandbox.run(argv(&["/tmp/s"])).code(), 126);
    assert_eq!(sandbox.run(argv(&["/tmp/p", "one"])).text(), "plain one\n");
    let ran = sandbox.run(argv(&["/bin/echo", &"x".repeat(140_000)]));
    assert_eq!(ran.code(), 126);
    assert!(
        ran.errors().contains("Argument list too long"),
        "{}",
        ran.errors()
    );
}

#[test]
fn what_may_not_be_asked_is_an_error_and_runs_nothing() {
    let sandbox = TestSandbox::new(&[]);
    let reason = |spec: CommandSpec| sandbox.try_run(&fresh_id(), spec).unwrap_err().reason;
    assert_eq!(reason(sh("")), "EMPTY_COMMAND");
    assert_eq!(reason(sh("  \n")), "EMPTY_COMMAND");
    assert_eq!(reason(argv(&[])), "EMPTY_COMMAND");
    assert_eq!(reason(argv(&["  "])), "EMPTY_COMMAND");
    assert_eq!(reason(argv(&["a\0b"])), "INVALID_ARGUMENT");
    assert_eq!(
        reason(CommandSpec {
            user: "nobody-here".into(),
            ..sh("true")
        }),
        "INVALID_USER"
    );
    assert_eq!(
        reason(CommandSpec {
            cwd: "/no/where".into(),
            ..sh("true")
        }),
        "FILE_NOT_FOUND"
    );
    assert_eq!(
        reason(CommandSpec {
            output_cap_bytes: 65 << 20,
            ..sh("true")
        }),
        "INVALID_LIMIT"
    );
    assert_eq!(
        reason(CommandSpec {
            session_id: "none".into(),
            ..sh("true")
        }),
        "SESSION_NOT_FOUND"
    );
    let bad = BTreeMap::from([("a=b".to_string(), String::new())]);
    assert_eq!(
        reason(CommandSpec {
            env: bad,
            ..sh("true")
        }),
        "INVALID_ARGUMENT"
    );
    assert_eq!(
        sandbox.try_run("a b", sh("true")).unwrap_err().reason,
        "INVALID_ARGUMENT"
    );
    assert_eq!(
        sandbox
            .try_run(
                "again",
                CommandSpec {
                    user: "nobody-here".into(),
                    ..sh("true")
                }
            )
            .unwrap_err()
            .reason,
        "INVALID_USER"
    );
    assert_eq!(
        sandbox.run_as("again", sh("true")).code(),
        0,
        "an ID that never ran is free"
    );
}

#[test]
fn environment_user_and_directory() {
    let sandbox = TestSandbox::new(&[]);
    let ran = sandbox.sh("echo $HOME $USER $LANG $PATH $PWD; echo $0; tr '\\0' '\\n' </proc/$$/environ | grep -c TERM; id -u");
    assert_eq!(
        ran.text(),
        "/root root C.UTF-8 /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /root\nbash\n0\n0\n"
    );
    sandbox.configure(AetherConfigure {
        env: BTreeMap::from([
            ("PATH".into(), "/usr/bin".into()),
            ("FOO".into(), "image".into()),
        ]),
        secret_env: BTreeMap::from([("TOKEN".into(), "hush-4711".into())]),
        user: "ann".into(),
        cwd: "/tmp".into(),
    });
    let ran = sandbox.sh("echo $HOME $USER $FOO ${#TOKEN} $PATH $PWD; id -un; id -Gn");
    assert_eq!(
        ran.text(),
        "/home/ann ann image 9 /usr/bin /tmp\nann\nann g1\n"
    );
    let spec = CommandSpec {
        cwd: "../etc".into(),
        user: "root:g1".into(),
        ..sh("pwd; id -g")
    };
    assert_eq!(sandbox.run(spec).text(), "/etc\n1001\n");
    let big: String = (0..2000)
        .map(|i| format!("line {i} of a value that is long -n a'b\"c$HOME\\ \n"))
        .collect();
    let env = BTreeMap::from([
        ("BIG".into(), big.clone()),
        ("ODD".into(), "-n a'b\"c$HOME\\".into()),
    ]);
    let ran = sandbox.run(CommandSpec {
        env,
        ..sh("printf %s \"$BIG$ODD\"")
    });
    assert_eq!(ran.text(), format!("{big}-n a'b\"c$HOME\\"));
    assert_eq!(ran.info.env_names, ["BIG", "ODD"]);
    let secret = BTreeMap::from([("KEY".into(), "hush-0815".into())]);
    assert_eq!(
        sandbox
            .run(CommandSpec {
                secret_env: secret,
                ..sh("echo ${#KEY}")
            })
            .text(),
        "9\n"
    );
    let history = std::fs::read(sandbox.run.join("records/history")).unwrap();
    let leaks = |secret: &str| {
        history
            .windows(secret.len())
            .any(|w| w == secret.as_bytes())
    };
    assert!(
        leaks("ODD") && !leaks("hush-"),
        "values of secrets are in no history"
    );
    let usermod = CommandSpec {
        user: "root".into(),
        ..sh("sed -i 's/^root:x:0:$/root:x:0:ann/' /etc/group")
    };
    assert_eq!(sandbox.run(usermod).code(), 0);
    assert_eq!(sandbox.sh("id -Gn").text(), "ann root g1\n");
}

#[test]
fn a_long_text_is_run_too() {
    let sandbox = TestSandbox::new(&[]);
    let text = format!(
        "x='{}'; echo ${{#x}}; ls /proc/self/fd | tr '\\n' ' '",
        "y".repeat(300_000)
    );
    assert_eq!(sandbox.sh(&text).text(), "300000\n0 1 2 3 ");
}

#[test]
fn a_timeout_ends_the_whole_tree() {
    for options in [&[][..], &["noleaf"]] {
        let sandbox = TestSandbox::new(options);
        let text =
            "setsid sleep 4711 & (setsid sh -c 'sleep 4711 & sleep 4711' &) ; while :; do :; done";
        let ran = sandbox.run(CommandSpec {
            timeout_ms: 1000,
            ..sh(text)
        });
        assert!(
            ran.outcome.timed_out
                && ran.outcome.signal == "SIGKILL"
                && ran.outcome.exit_code.is_none()
        );
        if options.is_empty() {
            eventually("all is gone", || {
                sandbox.sh("pgrep -cf '[s]leep 4711'").text() == "0\n"
            });
        }
    }
}

#[test]
fn what_a_command_leaves_lives_on_until_its_tree_is_killed() {
    let sandbox = TestSandbox::new(&[]);
    let ran = sandbox.run_as(
        "leaves",
        sh("nohup setsid sleep 4712 >/dev/null 2>&1 & sleep 0.1"),
    );
    assert_eq!(ran.code(), 0);
    assert_eq!(sandbox.sh("pgrep -cf '[s]leep 4712'").text(), "1\n");
    sandbox.client().signal("leaves", 9, true).unwrap();
    eventually("the service is gone", || {
        sandbox.sh("pgrep -cf '[s]leep 4712'").text() == "0\n"
    });
}

#[test]
fn a_child_that_keeps_stdout_does_not_hold_the_result() {
    let sandbox = TestSandbox::new(&[]);
    let start = Instant::now();
    let ran = sandbox.run_as("keeper", sh("echo first; (sleep 0.3; echo second; sleep 0.3; echo third; touch /tmp/lived) & exit 3"));
    assert_eq!((ran.text().as_str(), ran.code()), ("first\n", 3));
    assert!(start.elapsed() < Duration::from_secs(20));
    eventually("the writer goes on", || {
        sandbox.sh("test -e /tmp/lived").code() == 0
    });
    eventually("what it wrote is recorded", || {
        sandbox
            .client()
            .attach("keeper", [0, 0], false)
            .finish()
            .unwrap()
            .text()
            == "first\nsecond\nthird\n"
    });
    let ran = sandbox.sh("yes background & echo main; exit 0");
    assert!(ran.text().contains("main\n") && ran.code() == 0);
    assert_eq!(sandbox.sh("echo alive").text(), "alive\n");
}

#[test]
fn an_id_is_never_run_twice() {
    let sandbox = TestSandbox::new(&[]);
    let text = "echo ran >> /tmp/count; sleep 0.3; cat /tmp/count; exit 7";
    let first = sandbox.client().start("once", sh(text)).unwrap();
    let again = sandbox.client().start("once", sh(text)).unwrap();
    let (first, again) = (first.finish().unwrap(), again.finish().unwrap());
    assert_eq!((first.text(), first.code()), ("ran\n".into(), 7));
    assert_eq!((again.text(), again.code()), ("ran\n".into(), 7));
    assert_eq!(sandbox.sh("echo other; exit 1").code(), 1);
    let later = sandbox.run_as("once", sh(text));
    assert_eq!((later.text(), later.code()), ("ran\n".into(), 7));
}

#[test]
fn history_lists_commands_in_order_of_start() {
    let sandbox = TestSandbox::new(&[]);
    let mut client = sandbox.client();
    client.background("sleeper", sh("sleep 60")).unwrap();
    for i in 0..5 {
        sandbox.run_as(&format!("h{i}"), sh(&format!("exit {i}")));
    }
    let list = |client: &mut Client, from, limit, running_only| {
        let call = AetherListCommands {
            from,
            limit,
            running_only,
        };
        match client.call(Call::ListCommands(call)).unwrap() {
            aether_reply::Result::Commands(reply) => reply,
            other => panic!("{other:?}"),
        }
    };
    let first = list(&mut client, 0, 3, false);
    let ids: Vec<_> = first
        .commands
        .iter()
        .map(|c| c.command_id.as_str())
        .collect();
    assert_eq!(ids, ["sleeper", "h0", "h1"]);
    let rest = list(&mut client, first.next, 0, false);
    assert_eq!((rest.commands.len(), rest.next), (3, 0));
    assert_eq!(
        rest.commands[2].outcome.as_ref().unwrap().exit_code,
        Some(4)
    );
    assert_eq!(rest.commands[2].shell, "exit 4");
    let running = list(&mut client, 0, 0, true);
    assert_eq!(running.commands.len(), 1);
    assert_eq!(sandbox.hello().running_commands, 1);
    client.signal("sleeper", 15, false).unwrap();
    assert_eq!(
        sandbox
            .client()
            .attach("sleeper", [0, 0], false)
            .finish()
            .unwrap()
            .outcome
            .signal,
        "SIGTERM"
    );
    assert_eq!(
        client.get("sleeper").unwrap().state,
        CommandState::Ended as i32
    );
    assert_eq!(client.get("none").unwrap_err().reason, "COMMAND_NOT_FOUND");
}

#[test]
fn a_terminal() {
    let sandbox = TestSandbox::new(&[]);
    let pty = Some(PtySize {
        rows: 30,
        cols: 100,
    });
    let on_pty = |text: &str| CommandSpec { pty, ..sh(text) };
    let ran = sandbox.run(on_pty(
        "locale charmap; printf '┌─┐\\n'; stty size; tty; echo $TERM; exit 4",
    ));
    assert_eq!(
        (ran.text().as_str(), ran.code()),
        (
            "UTF-8\r\n┌─┐\r\n30 100\r\n/dev/pts/0\r\nxterm-256color\r\n",
            4
        )
    );
    for pty in [pty, None] {
        let start = Instant::now();
        let ran = sandbox.run(CommandSpec {
            pty,
            ..argv(&["bash", "-ic", "echo hi"])
        });
        assert!(
            ran.text().ends_with("hi\r\n") || ran.text() == "hi\n",
            "{ran:?}"
        );
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    let mut shell = sandbox
        .client()
        .start("term", on_pty("read line; stty size; echo got $line; cat"))
        .unwrap();
    let mut client = sandbox.client();
    client
        .call(Call::Resize(AetherResize {
            command_id: "term".into(),
            size: Some(PtySize { rows: 5, cols: 7 }),
        }))
        .unwrap();
    assert_eq!(client.input("term", 0, b"abc\n", false).unwrap(), 4);
    shell.until("5 7\r\ngot abc\r\n");
    client.input("term", 4, b"", true).unwrap();
    assert_eq!(shell.finish().unwrap().code(), 0);
    let call = Call::Resize(AetherResize {
        command_id: "term".into(),
        size: Some(PtySize { rows: 0, cols: 7 }),
    });
    assert_eq!(client.call(call).unwrap_err().reason, "INVALID_ARGUMENT");
}

#[test]
fn input_by_offset() {
    let sandbox = TestSandbox::new(&[]);
    let cat = sandbox
        .client()
        .start(
            "cat",
            CommandSpec {
                stdin: b"given ".to_vec(),
                stdin_open: true,
                ..sh("cat")
            },
        )
        .unwrap();
    let mut client = sandbox.client();
    assert_eq!(client.input("cat", 6, b"and more", false).unwrap(), 14);
    assert_eq!(
        client.input("cat", 6, b"and more", false).unwrap(),
        14,
        "a repeat does no harm"
    );
    assert_eq!(client.input("cat", 10, b"more, last", false).unwrap(), 20);
    assert_eq!(
        client.input("cat", 25, b"x", false).unwrap_err().reason,
        "INPUT_GAP"
    );
    assert_eq!(client.input("cat", 20, b"", true).unwrap(), 20);
    assert_eq!(client.input("cat", 20, b"", true).unwrap(), 20);
    assert_eq!(
        client.input("cat", 20, b"x", false).unwrap_err().reason,
        "STDIN_CLOSED"
    );
    assert_eq!(cat.finish().unwrap().text(), "given and more, last");
    assert_eq!(
        sandbox
            .run(CommandSpec {
                stdin: vec![7; 1 << 20],
                ..sh("cksum | cut -d' ' -f2")
            })
            .text(),
        "1048576\n"
    );
    assert_eq!(sandbox.sh("cat; echo done").text(), "done\n");
}

#[test]
fn input_waits_for_a_reader_without_blocking_anybody() {
    let sandbox = TestSandbox::new(&[]);
    let mut client = sandbox.client();
    client
        .background(
            "slow",
            CommandSpec {
                stdin_open: true,
                ..sh("sleep 1; cksum | cut -d' ' -f2")
            },
        )
        .unwrap();
    let data = vec![1u8; 1 << 20];
    let mut sent = 0;
    while sent < 4 << 20 {
        let n = ((4 << 20) - sent).min(data.len() as u64) as usize;
        let accepted = client
            .input("slow", sent, &data[..n], sent + n as u64 == 4 << 20)
            .unwrap();
        if accepted == sent {
            std::thread::sleep(Duration::from_millis(20));
        }
        sent = accepted;
    }
    assert_eq!(client.input("slow", sent, b"", true).unwrap_or(sent), sent);
    assert_eq!(
        sandbox
            .client()
            .attach("slow", [0, 0], false)
            .finish()
            .unwrap()
            .text(),
        "4194304\n"
    );
}

#[test]
fn private_memory_stays_below_a_mebibyte() {
    let sandbox = TestSandbox::new(&[]);
    let pid = sandbox.hello().aether_pid;
    let private_kib = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let field = |line: &str| {
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        text.lines()
            .filter(|line| line.starts_with("Private_"))
            .map(field)
            .sum::<u64>()
    };
    println!("idle: {} KiB private", private_kib());
    for _ in 0..200 {
        sandbox.sh("echo some output");
    }
    sandbox.sh("head -c 30000000 /dev/zero");
    sandbox.client().open_session("s").unwrap();
    eventually("memory is given back", || private_kib() <= 1024);
}
