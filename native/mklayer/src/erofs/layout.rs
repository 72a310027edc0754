//! Decides where inodes and directory blocks go.
use crate::data::{Content, BLOCK};
use crate::error::{Failure, Result};
use crate::tar::Xattrs;
use crate::tree::{Body, Dir, Node, NodeId, Tree, ROOT};

/// After the superblock (1024, 128 bytes) and one device slot (128 bytes).
pub const FIRST_INODE: u64 = 1280;
pub const INODE_SIZE: u64 = 64;
const SLOT: u64 = 32;
const DIRENT: u64 = 12;

/// How an inode's own bytes (a directory's entries, a link's target) are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// All in blocks of their own, from this one.
    Blocks { start: u32 },
    /// The last, partial block follows the inode; `start` is the first of the others.
    Inline { start: u32 },
    /// It has none.
    None,
}

pub struct Layout {
    /// Nodes in the order of their inodes.
    pub order: Vec<NodeId>,
    /// Offset of a node's inode, by node.
    pub offsets: Vec<u64>,
    pub tails: Vec<Tail>,
    /// Blocks of inodes; directory blocks follow.
    pub inode_blocks: u64,
    pub total_blocks: u64,
    pub chunked: bool,
}

impl Layout {
    pub fn nid(&self, node: NodeId) -> u64 {
        self.offsets[node as usize] / SLOT
    }
}

/// Inodes lie in the order of a walk, each directory followed by its files, then by its directories.
pub fn layout(tree: &Tree, contents: &[Content]) -> Result<Layout> {
    let order = walk(tree);
    let mut offsets = vec![0u64; tree.nodes.len()];
    let mut tails = vec![Tail::None; tree.nodes.len()];
    let mut blocks = 0u64;
    let mut end = FIRST_INODE;
    let mut chunked = false;
    for &id in &order {
        let node = &tree.nodes[id as usize];
        let (head, extra) = (
            INODE_SIZE + xattrs_size(&xattrs_of(node)),
            index_size(node, contents),
        );
        chunked |= extra > 0;
        let (full, tail) = match &node.body {
            Body::Dir(dir) => dir_size(dir),
            Body::Symlink(target) => (0, target.len() as u64),
            _ => (0, 0),
        };
        let has_own = full + tail > 0;
        let inline = has_own && head + tail <= BLOCK;
        // The inode, and with an inline tail all of it, stays within one block.
        let together = if inline { head + tail } else { INODE_SIZE };
        let mut at = end.next_multiple_of(SLOT);
        if at % BLOCK + together > BLOCK {
            at = at.next_multiple_of(BLOCK);
        }
        offsets[id as usize] = at;
        end = at
            + if inline {
                head + tail
            } else {
                (head + extra_padding(head, extra)) + extra
            };
        if has_own {
            let start = u32::try_from(blocks).map_err(|_| too_large())?;
            tails[id as usize] = if inline {
                Tail::Inline { start }
            } else {
                Tail::Blocks { start }
            };
            blocks += full + u64::from(!inline && tail > 0);
        }
    }
    let inode_blocks = end.div_ceil(BLOCK);
    let total_blocks = inode_blocks + blocks;
    if total_blocks > u64::from(u32::MAX) / 2 {
        return Err(too_large());
    }
    for tail in &mut tails {
        match tail {
            Tail::Blocks { start } | Tail::Inline { start } => *start += inode_blocks as u32,
            Tail::None => {}
        }
    }
    Ok(Layout {
        order,
        offsets,
        tails,
        inode_blocks,
        total_blocks,
        chunked,
    })
}

fn too_large() -> Failure {
    Failure::limit("the layer's metadata is too large")
}

fn walk(tree: &Tree) -> Vec<NodeId> {
    let mut seen = vec![false; tree.nodes.len()];
    let mut order = vec![ROOT];
    let mut todo = vec![ROOT];
    while let Some(id) = todo.pop() {
        let Some(dir) = tree.dir(id) else { continue };
        if id != ROOT {
            order.push(id);
        }
        for child in dir.children.values() {
            if tree.dir(child.node).is_none()
                && !std::mem::replace(&mut seen[child.node as usize], true)
            {
                order.push(child.node);
            }
        }
        todo.extend(
            dir.children
                .values()
                .rev()
                .map(|c| c.node)
                .filter(|c| tree.dir(*c).is_some()),
        );
    }
    order
}

/// Names of a directory in the image's order, with `.` and `..`.
pub fn sorted_names(dir: &Dir, id: NodeId) -> Vec<(&[u8], NodeId)> {
    let mut names: Vec<(&[u8], NodeId)> =
        dir.children.iter().map(|(n, c)| (&**n, c.node)).collect();
    names.push((b".", id));
    names.push((b"..", dir.parent));
    names.sort_unstable();
    names
}

/// Splits sorted names into blocks; each block's number of names and bytes.
pub fn dir_blocks(names: &[(&[u8], NodeId)]) -> Vec<(usize, u64)> {
    let mut blocks = Vec::new();
    let (mut count, mut bytes) = (0, 0u64);
    for (name, _) in names {
        let one = DIRENT + name.len() as u64;
        if bytes + one > BLOCK {
            blocks.push((count, bytes));
            (count, bytes) = (0, 0);
        }
        count += 1;
        bytes += one;
    }
    blocks.push((count, bytes));
    blocks
}

/// Full blocks, and the bytes of the last one.
fn dir_size(dir: &Dir) -> (u64, u64) {
    let blocks = dir_blocks(&sorted_names(dir, ROOT));
    (blocks.len() as u64 - 1, blocks.last().map_or(0, |b| b.1))
}

/// log2 of the chunk size and the number of chunks of a file with bytes.
pub fn chunks(size: u64, content: Option<&Content>) -> (u32, u64) {
    match content.and_then(|c| c.map.as_ref()) {
        Some(map) => (map.bits, map.chunks.len() as u64),
        None => (12.max(size.next_power_of_two().trailing_zeros()), 1),
    }
}

fn index_size(node: &Node, contents: &[Content]) -> u64 {
    match &node.body {
        Body::File { size, content } if *size > 0 => {
            8 * chunks(*size, content.map(|c| &contents[c as usize])).1
        }
        _ => 0,
    }
}

/// Chunk indexes are aligned to 8 bytes.
pub fn extra_padding(head: u64, extra: u64) -> u64 {
    if extra == 0 {
        return 0;
    }
    head.next_multiple_of(8) - head
}

/// The attributes as they are stored, with overlayfs' mark of an opaque directory.
pub fn xattrs_of(node: &Node) -> std::borrow::Cow<'_, Xattrs> {
    match &node.body {
        Body::Dir(Dir { opaque: true, .. }) => {
            let mut all = node.attributes.xattrs.clone();
            all.push((
                b"trusted.overlay.opaque".as_slice().into(),
                b"y".as_slice().into(),
            ));
            all.sort_unstable();
            std::borrow::Cow::Owned(all)
        }
        _ => std::borrow::Cow::Borrowed(&node.attributes.xattrs),
    }
}

/// Bytes of the attributes after an inode: a header of 12, entries aligned to 4.
pub fn xattrs_size(xattrs: &Xattrs) -> u64 {
    if xattrs.is_empty() {
        return 0;
    }
    let entries = xattrs.iter().map(|(name, value)| {
        let (_, rest) = xattr_index(name);
        (4 + rest.len() as u64 + value.len() as u64).next_multiple_of(4)
    });
    12 + entries.sum::<u64>()
}

/// The number of a name's prefix, and what follows it.
pub fn xattr_index(name: &[u8]) -> (u8, &[u8]) {
    const PREFIXES: [(&[u8], u8); 5] = [
        (b"user.", 1),
        (b"system.posix_acl_access", 2),
        (b"system.posix_acl_default", 3),
        (b"trusted.", 4),
        (b"security.", 6),
    ];
    for (prefix, index) in PREFIXES {
        if let Some(rest) = name.strip_prefix(prefix) {
            return (index, rest);
        }
    }
    (0, name)
}
