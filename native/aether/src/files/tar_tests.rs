use super::*;

/// Through encode and back, as a reader does it.
fn round(entry: &Entry) -> Entry {
    let mut bytes = Vec::new();
    entry.encode(&mut bytes);
    assert_eq!(bytes.len() % BLOCK, 0);
    let mut pax = Pax::default();
    let mut at = 0;
    loop {
        let block: &[u8; BLOCK] = bytes[at..at + BLOCK].try_into().unwrap();
        let mut read = decode(block).unwrap();
        at += BLOCK;
        if read.kind == b'x' {
            pax.read(&bytes[at..at + read.size as usize]).unwrap();
            at += read.size as usize + padding(read.size);
            continue;
        }
        assert_eq!(at, bytes.len());
        pax.apply(&mut read);
        return read;
    }
}

fn entry(name: &[u8]) -> Entry {
    Entry {
        name: name.to_vec(),
        kind: FILE,
        mode: 0o644,
        modified: (1_700_000_000, 0),
        ..Entry::default()
    }
}

#[test]
fn any_name_comes_back() {
    let long = vec![b'x'; 255];
    let deep = vec![b"directory/".as_slice(); 400].concat();
    let names: [&[u8]; 8] = [
        b"a",
        b"with\nnewline and \"quote\"",
        &[0xff, 0xfe, b'/', 0x80],
        &long,
        &[&[b'd'; 90][..], b"/", &[b'f'; 90][..]].concat(),
        &[&[b'd'; 160][..], b"/", &[b'f'; 9][..]].concat(),
        &deep,
        "ü/ä".as_bytes(),
    ];
    for name in names {
        assert_eq!(round(&entry(name)).name, name);
        let link = Entry {
            kind: SYMLINK,
            link: name.to_vec(),
            ..entry(b"l")
        };
        assert_eq!(round(&link), link);
    }
}

#[test]
fn sizes_and_times_of_any_kind_come_back() {
    for size in [
        0,
        1,
        0o77777777777,
        0o100000000000,
        1 << 40,
        i64::MAX as u64,
    ] {
        let sized = Entry {
            size,
            ..entry(b"f")
        };
        assert_eq!(round(&sized), sized);
    }
    for modified in [
        (0, 0),
        (0, 1),
        (-1, 0),
        (-1, 999_999_999),
        (-2, 1),
        (1, 500_000_000),
        (1 << 40, 7),
    ] {
        let timed = Entry {
            modified,
            ..entry(b"f")
        };
        assert_eq!(round(&timed), timed, "{modified:?}");
    }
    let attributes = vec![
        (b"user.a".to_vec(), vec![0, 10, 255]),
        (b"security.capability".to_vec(), vec![1; 20]),
    ];
    let with = Entry {
        attributes,
        ..entry(b"f")
    };
    assert_eq!(round(&with), with);
}

#[test]
fn a_header_that_was_changed_is_refused() {
    let mut bytes = Vec::new();
    entry(b"name").encode(&mut bytes);
    bytes[0] ^= 1;
    let block: &[u8; BLOCK] = bytes[..BLOCK].try_into().unwrap();
    assert!(decode(block).unwrap_err().contains("checksum"));
}

#[test]
fn base_256_is_read() {
    assert_eq!(
        number(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]),
        Ok(1 << 33)
    );
    assert_eq!(number(&[0xff; 12]), Ok(-1));
    assert!(number(&[0x80, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]).is_err());
    assert_eq!(number(b"  644 \0\0"), Ok(0o644));
    assert!(number(b"12x4567\0").is_err());
}

#[test]
fn broken_pax_records_are_refused() {
    let records: [&[u8]; 7] = [
        b"5",
        b"99 path=a\n",
        b"9 path=ab",
        b"0 path=a\n",
        b"x path=a\n",
        b"10 path-ab\n",
        b"11 size=1x2\n",
    ];
    for record in records {
        assert!(Pax::default().read(record).is_err(), "{record:?}");
    }
    assert!(Pax::default().read(b"22 GNU.sparse.major=1\n").is_err());
}
