use std::fs;
use std::os::unix::fs::{symlink, MetadataExt};

use wire::aether_reply::Result as Reply;

use crate::support::{make_fifo, write_tree_call, Root};
use crate::tree_write::{archive, file, header};

#[test]
fn a_global_header_holds_until_it_is_taken_back() {
    let root = Root::new();
    let pax = |kind: u8, records: &[u8]| {
        let mut entry = header(b"pax_global_header", kind, records.len() as u64, b"");
        entry.extend_from_slice(records);
        entry.resize(entry.len().div_ceil(512) * 512, 0);
        entry
    };
    let entries = [
        pax(b'g', b"16 comment=abcd\n17 mtime=1000000\n"),
        file(b"a", b""),
        pax(b'x', b"13 mtime=7.5\n"),
        file(b"b", b""),
        file(b"c", b""),
    ];
    root.write_tree(b"/out", &archive(&entries)).unwrap();
    let times = ["a", "b", "c"].map(|name| {
        let about = fs::metadata(root.at("out").join(name)).unwrap();
        (about.mtime(), about.mtime_nsec())
    });
    assert_eq!(times, [(1_000_000, 0), (7, 500_000_000), (1_000_000, 0)]);
}

#[test]
fn a_damaged_archive_gives_an_answer_and_touches_nothing_outside() {
    let root = Root::new();
    root.file("keep/f", b"kept");
    root.file(&format!("t/{}/f", "d".repeat(180)), b"contents");
    root.file("t/a", &[1; 2000]);
    fs::hard_link(root.at("t/a"), root.at("t/z")).unwrap();
    symlink("/keep", root.at("t/link")).unwrap();
    make_fifo(&root.at("t/fifo"));
    let whole = root.read_tree(b"/t");
    // A fixed seed: a failure comes again.
    let mut state = 20_261_129u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    for round in 0..400 {
        let mut damaged = whole.clone();
        for _ in 0..1 + random(4) {
            let block = random(damaged.len() / 512) * 512;
            damaged[block + random(512)] = [0, b'/', b'.', b'9', b'=', 0x80, 0xff, b' '][random(8)];
            // Half of the headers get a right checksum again, so that what is behind it is met too.
            if random(2) == 0 {
                let header = &mut damaged[block..block + 512];
                header[148..156].fill(b' ');
                let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
                header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            }
        }
        let mut worker = root.call(write_tree_call(b"/out"));
        worker.send(&damaged);
        worker.finish();
        match worker.reply() {
            Reply::Done(_) => {}
            Reply::Error(error) => assert!(error.message.contains("/out"), "{round}: {error:?}"),
            other => panic!("{round}: {other:?}"),
        }
        // The worker waits a second for what may still come.
        worker.stream.shutdown(std::net::Shutdown::Both).unwrap();
        worker.end();
        let _ = fs::remove_dir_all(root.at("out"));
        assert_eq!(root.names("/"), ["keep", "t"], "{round}");
        assert_eq!(root.names("keep"), ["f"], "{round}");
    }
}
