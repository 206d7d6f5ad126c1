//! Options of the handshake, parsed.

use super::wire::{Fields, opt};

/// Largest data of an option: a name, and more queries than real clients send.
pub const DATA_MAX: u32 = 64 << 10;
/// Longest string that the protocol allows.
pub const STRING_MAX: usize = 4096;
/// Largest number of queries in one option.
const QUERIES_MAX: u32 = 256;
/// Largest number of information requests in one option.
const INFOS_MAX: u16 = 256;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opt {
    ExportName(String),
    Abort,
    List,
    StartTls,
    /// `INFO`, or with `go` the same, followed by transmission.
    Info {
        name: String,
        infos: Vec<u16>,
        go: bool,
    },
    StructuredReply,
    ExtendedHeaders,
    /// `LIST_META_CONTEXT`, or with `set` the choice of contexts.
    MetaContext {
        name: String,
        queries: Vec<String>,
        set: bool,
    },
    Unknown,
    /// A known option with invalid data.
    Malformed,
}

impl Opt {
    pub fn parse(number: u32, data: &[u8]) -> Opt {
        let bare = |option| if data.is_empty() { option } else { Opt::Malformed };
        match number {
            opt::EXPORT_NAME => std::str::from_utf8(data)
                .ok()
                .filter(|name| name.len() <= STRING_MAX)
                .map_or(Opt::Malformed, |name| Opt::ExportName(name.to_owned())),
            opt::ABORT => Opt::Abort,
            opt::LIST => bare(Opt::List),
            opt::STARTTLS => bare(Opt::StartTls),
            opt::STRUCTURED_REPLY => bare(Opt::StructuredReply),
            opt::EXTENDED_HEADERS => bare(Opt::ExtendedHeaders),
            opt::INFO | opt::GO => info(data, number == opt::GO).unwrap_or(Opt::Malformed),
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => {
                meta_context(data, number == opt::SET_META_CONTEXT).unwrap_or(Opt::Malformed)
            }
            _ => Opt::Unknown,
        }
    }
}

fn info(data: &[u8], go: bool) -> Option<Opt> {
    let mut fields = Fields(data);
    let name = fields.text(STRING_MAX)?.to_owned();
    let count = fields.u16().filter(|count| *count <= INFOS_MAX)?;
    let infos = (0..count).map(|_| fields.u16()).collect::<Option<Vec<u16>>>()?;
    fields.is_empty().then_some(Opt::Info { name, infos, go })
}

fn meta_context(data: &[u8], set: bool) -> Option<Opt> {
    let mut fields = Fields(data);
    let name = fields.text(STRING_MAX)?.to_owned();
    let count = fields.u32().filter(|count| *count <= QUERIES_MAX)?;
    let queries = (0..count).map(|_| fields.text(STRING_MAX).map(str::to_owned)).collect::<Option<Vec<String>>>()?;
    fields.is_empty().then_some(Opt::MetaContext { name, queries, set })
}
