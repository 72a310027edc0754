//! The tree in memory: names, attributes, and where contents are. Paths are resolved here, never by the kernel.
use crate::data::ContentId;
use crate::error::{shown, Failure, Result};
use crate::limits::{Budget, MAX_PATH};
use crate::tar::Xattrs;
use std::collections::{BTreeMap, VecDeque};

pub type NodeId = u32;
pub const ROOT: NodeId = 0;
const MAX_LINKS_FOLLOWED: u32 = 40;
const NODE_COST: u64 = 200;

#[derive(Debug, Clone, Default)]
pub struct Attributes {
    /// Permission bits, with set-id and sticky.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: i64,
    pub mtime_nsec: u32,
    pub xattrs: Xattrs,
}

#[derive(Debug)]
pub enum Body {
    Dir(Dir),
    /// Without content: empty, or one hole.
    File {
        size: u64,
        content: Option<ContentId>,
    },
    Symlink(Box<[u8]>),
    Char(u32),
    Block(u32),
    Fifo,
}

#[derive(Debug)]
pub struct Dir {
    pub children: BTreeMap<Box<[u8]>, Child>,
    pub parent: NodeId,
    pub depth: u16,
    /// Hides what stands below it when mounted.
    pub opaque: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Child {
    pub node: NodeId,
    /// The input that put the name here.
    pub layer: u32,
}

#[derive(Debug)]
pub struct Node {
    pub attributes: Attributes,
    pub body: Body,
    /// Names of it; 0 when it is gone.
    pub links: u32,
}

impl Node {
    /// As overlayfs marks a removed name.
    pub fn is_whiteout(&self) -> bool {
        matches!(self.body, Body::Char(0))
    }
}

pub struct Tree {
    pub nodes: Vec<Node>,
    budget: Budget,
    heap: u64,
}

impl Tree {
    pub fn new(budget: Budget) -> Self {
        let root = new_dir(ROOT, 0);
        let attributes = Attributes {
            mode: 0o755,
            ..Attributes::default()
        };
        Tree {
            nodes: vec![Node {
                attributes,
                body: root,
                links: 1,
            }],
            budget,
            heap: 0,
        }
    }

    pub fn dir(&self, id: NodeId) -> Option<&Dir> {
        match &self.nodes[id as usize].body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    pub fn dir_mut(&mut self, id: NodeId) -> Option<&mut Dir> {
        match &mut self.nodes[id as usize].body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    pub fn child(&self, dir: NodeId, name: &[u8]) -> Option<Child> {
        self.dir(dir)?.children.get(name).copied()
    }

    /// Counts memory that the archive made us take.
    pub fn charge(&mut self, bytes: u64) -> Result<()> {
        self.heap = self.heap.saturating_add(bytes);
        self.budget.check_heap(self.heap)
    }

    pub fn add(&mut self, attributes: Attributes, body: Body) -> Result<NodeId> {
        let most = self.budget.limits.max_entries.min(u64::from(u32::MAX) - 1);
        if self.nodes.len() as u64 > most {
            return Err(Failure::limit(format!(
                "the archive has more than {most} entries"
            )));
        }
        let xattrs: usize = attributes
            .xattrs
            .iter()
            .map(|(name, value)| name.len() + value.len() + 32)
            .sum();
        self.charge(NODE_COST + xattrs as u64)?;
        self.nodes.push(Node {
            attributes,
            body,
            links: 0,
        });
        Ok((self.nodes.len() - 1) as NodeId)
    }

    pub fn new_dir_in(&mut self, parent: NodeId, attributes: Attributes) -> Result<NodeId> {
        let depth = self.dir(parent).map_or(0, |d| d.depth) + 1;
        if depth > self.budget.limits.max_depth {
            let most = self.budget.limits.max_depth;
            return Err(Failure::limit(format!(
                "directories are nested more than {most} deep"
            )));
        }
        self.add(attributes, new_dir(parent, depth))
    }

    /// Gives `node` a name; what had it before is removed.
    pub fn link(&mut self, dir: NodeId, name: &[u8], node: NodeId, layer: u32) -> Result<()> {
        self.charge(name.len() as u64 + 64)?;
        self.nodes[node as usize].links += 1;
        self.unlink(dir, name);
        if let Some(dir) = self.dir_mut(dir) {
            dir.children.insert(name.into(), Child { node, layer });
        }
        Ok(())
    }

    /// Removes a name and, with its last one, the node and what is under it.
    pub fn unlink(&mut self, dir: NodeId, name: &[u8]) {
        let removed = self.dir_mut(dir).and_then(|d| d.children.remove(name));
        let mut gone: Vec<NodeId> = removed.map(|c| c.node).into_iter().collect();
        while let Some(id) = gone.pop() {
            let node = &mut self.nodes[id as usize];
            node.links -= 1;
            if node.links > 0 {
                continue;
            }
            node.attributes.xattrs = Vec::new();
            if let Body::Dir(dir) = std::mem::replace(&mut node.body, Body::Fifo) {
                gone.extend(dir.children.values().map(|c| c.node));
            }
        }
    }

    /// The directory at `path`, through links as the kernel would go, but never above the root. With `make`, what is
    /// missing, or is neither directory nor link, becomes a directory of that input.
    pub fn walk(&mut self, path: &[&[u8]], make: Option<u32>) -> Result<Option<NodeId>> {
        let mut todo: VecDeque<Box<[u8]>> = path.iter().map(|c| Box::from(*c)).collect();
        let mut at = ROOT;
        let mut followed = 0;
        while let Some(name) = todo.pop_front() {
            if name.is_empty() || *name == *b"." {
                continue;
            }
            if *name == *b".." {
                at = self.dir(at).map_or(ROOT, |d| d.parent);
                continue;
            }
            let found = self
                .child(at, &name)
                .map(|c| (c.node, &self.nodes[c.node as usize]));
            match found {
                Some((
                    id,
                    Node {
                        body: Body::Dir(_), ..
                    },
                )) => at = id,
                Some((
                    _,
                    Node {
                        body: Body::Symlink(target),
                        ..
                    },
                )) => {
                    followed += 1;
                    if followed > MAX_LINKS_FOLLOWED {
                        let path = path.join(b"/".as_slice());
                        return Err(Failure::invalid(format!(
                            "{} goes through too many links",
                            shown(&path)
                        )));
                    }
                    if target.first() == Some(&b'/') {
                        at = ROOT;
                    }
                    let parts: Vec<Box<[u8]>> =
                        target.split(|b| *b == b'/').map(Box::from).collect();
                    for part in parts.into_iter().rev() {
                        todo.push_front(part);
                    }
                }
                other => {
                    let Some(layer) = make else { return Ok(None) };
                    check_name(&name)?;
                    let opaque = other.is_some_and(|(_, node)| node.is_whiteout());
                    let attributes = Attributes {
                        mode: 0o755,
                        ..Attributes::default()
                    };
                    let id = self.new_dir_in(at, attributes)?;
                    self.link(at, &name, id, layer)?;
                    if let Some(dir) = self.dir_mut(id) {
                        dir.opaque = opaque;
                    }
                    at = id;
                }
            }
        }
        Ok(Some(at))
    }

    /// Removes every name under `dir` that an input before `layer` put there; the number removed.
    pub fn hide_below(&mut self, dir: NodeId, layer: u32) -> usize {
        let Some(children) = self.dir(dir).map(|d| &d.children) else {
            return 0;
        };
        let all: Vec<(Box<[u8]>, Child)> = children.iter().map(|(n, c)| (n.clone(), *c)).collect();
        let mut removed = 0;
        for (name, child) in all {
            removed += self.hide(dir, &name, child, layer);
        }
        removed
    }

    /// The same for one name. A directory stays while it holds something of `layer`.
    pub fn hide(&mut self, dir: NodeId, name: &[u8], child: Child, layer: u32) -> usize {
        let mut removed = self.hide_below(child.node, layer);
        let keeps = self.dir(child.node).is_some_and(|d| !d.children.is_empty());
        if child.layer < layer && !keeps {
            self.unlink(dir, name);
            removed += 1;
        } else if child.layer < layer {
            self.nodes[child.node as usize].attributes = Attributes {
                mode: 0o755,
                ..Attributes::default()
            };
        }
        removed
    }
}

fn new_dir(parent: NodeId, depth: u16) -> Body {
    Body::Dir(Dir {
        children: BTreeMap::new(),
        parent,
        depth,
        opaque: false,
    })
}

/// The components of a name in an archive: relative, without `..`.
pub fn components(path: &[u8]) -> Result<Vec<&[u8]>> {
    if path.is_empty() {
        return Err(Failure::invalid("an entry has no name"));
    }
    if path[0] == b'/' {
        return Err(Failure::leaves_root(format!(
            "the name {} is absolute",
            shown(path)
        )));
    }
    if path.len() > MAX_PATH {
        return Err(Failure::invalid(format!(
            "the name {} is longer than {MAX_PATH} bytes",
            shown(path)
        )));
    }
    let mut out = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                return Err(Failure::leaves_root(format!(
                    "the name {} goes through \"..\"",
                    shown(path)
                )))
            }
            part => {
                check_name(part)?;
                out.push(part);
            }
        }
    }
    Ok(out)
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.contains(&0) {
        return Err(Failure::invalid("a name holds a NUL byte"));
    }
    if name.len() > 255 {
        return Err(Failure::invalid(format!(
            "a part of the name {} is longer than 255 bytes",
            shown(name)
        )));
    }
    Ok(())
}
