//! Creates and destroys sandboxes against a hostd of its own: `churn [COUNT] [IN_FLIGHT] [ALIVE]`.
//! CPU time is that of hostd and of its children for a whole life (create, destroy, clean); the kernel's workers come on top.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{start_order, Rig};
use std::time::Instant;
use wire::{hostd_reply, hostd_request, HostdStop};

/// Of hostd and of all its children that have ended, in ticks of 10 ms.
fn cpu_ms(rig: &Rig) -> f64 {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", rig.hostd_pid())).expect("hostd's stat");
    let rest = stat.rsplit(')').next().unwrap_or("");
    rest.split_whitespace()
        .skip(11)
        .take(4)
        .flat_map(str::parse::<f64>)
        .sum::<f64>()
        * 10.0
}

fn available_kb() -> f64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("/proc/meminfo");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .unwrap_or("0");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

/// Sends `count` orders, `in_flight` at a time; says rate and CPU time.
fn phase(
    rig: &mut Rig,
    name: &str,
    count: usize,
    in_flight: usize,
    order: impl Fn(usize) -> hostd_request::Call,
) {
    let begin = Instant::now();
    let mut sent = 0;
    for done in 0..count {
        while sent < count && sent - done < in_flight {
            rig.wire.order(order(sent));
            sent += 1;
        }
        if let hostd_reply::Result::Error(error) = rig.wire.answer().result.expect("a result") {
            panic!("{name}: {error:?}");
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{name:12} {count:6}  {:8.0}/s", count as f64 / seconds);
}

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .flat_map(|word| word.parse())
        .collect();
    let (count, in_flight, alive) = match numbers[..] {
        [count, in_flight, alive, ..] => (count, in_flight, alive),
        [count, in_flight] => (count, in_flight, 0),
        [count] => (count, 32, 0),
        [] => (500, 32, 0),
    };
    let mut rig = Rig::new((count + alive + 64) as u32);
    let layer = rig.layer.clone();
    let start = |prefix: &'static str| {
        let layer = layer.clone();
        move |n: usize| hostd_request::Call::Start(start_order(&format!("{prefix}{n}"), &layer))
    };
    let stop = |prefix: &'static str| {
        move |n: usize| {
            hostd_request::Call::Stop(HostdStop {
                sandbox_id: format!("{prefix}{n}"),
                keep: false,
            })
        }
    };
    if alive > 0 {
        let before = available_kb();
        phase(&mut rig, "alive", alive, in_flight, start("alive"));
        println!(
            "memory       {:6.0} kB each",
            (before - available_kb()) / alive as f64
        );
    }
    for round in 0..3 {
        let cpu = cpu_ms(&rig);
        phase(&mut rig, "create", count, in_flight, start("box"));
        phase(&mut rig, "destroy", count, in_flight, stop("box"));
        let begin = Instant::now();
        while rig.info().slots_used as usize > alive {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let cpu = (cpu_ms(&rig) - cpu) / count as f64;
        println!(
            "round {round}: cleaning took {:.2} s more; {cpu:.2} ms of CPU a life",
            begin.elapsed().as_secs_f64()
        );
    }
}
