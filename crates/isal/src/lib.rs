//! Intel's ISA-L, opened at run time if it is installed (Debian: `libisal2`). Tests compare the
//! codes with it byte by byte, and benchmarks measure against it. It is never part of the product.
//!
//! It is a crate of its own so that the foreign calls are in one place and no product crate uses
//! them.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_uchar, c_void};

type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData = unsafe extern "C" fn(c_int, c_int, c_int, *const c_uchar, *const *const c_uchar, *const *mut c_uchar);
type RsMatrix = unsafe extern "C" fn(*mut c_uchar, c_int, c_int);
type InvertMatrix = unsafe extern "C" fn(*mut c_uchar, *mut c_uchar, c_int) -> c_int;
type PqGen = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;

/// The library, loaded for the life of the process.
#[derive(Clone, Copy, Debug)]
pub struct Isal {
    init_tables: InitTables,
    encode_data: EncodeData,
    rs_matrix: RsMatrix,
    invert_matrix: InvertMatrix,
    pq_gen: PqGen,
}

/// The expanded coefficients of `outputs` combinations of `sources` strips.
#[derive(Clone, Debug)]
pub struct Tables {
    bytes: Vec<u8>,
    sources: usize,
    outputs: usize,
}

impl Isal {
    /// Loads the library, or returns the reason and the package to install.
    pub fn load() -> Result<Isal, String> {
        let absent = || "ISA-L (libisal.so.2) is not installed; on Debian: apt-get install libisal2".to_owned();
        // SAFETY: the name is a C string; ISA-L runs no code on loading but its own dispatch.
        let handle = unsafe { libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(absent());
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle is open and never closed.
            let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if address.is_null() { Err(format!("ISA-L has no {}", name.to_string_lossy())) } else { Ok(address) }
        };
        // SAFETY: the types are those of erasure_code.h and raid.h of ISA-L 2.
        unsafe {
            Ok(Isal {
                init_tables: std::mem::transmute::<*mut c_void, InitTables>(symbol(c"ec_init_tables")?),
                encode_data: std::mem::transmute::<*mut c_void, EncodeData>(symbol(c"ec_encode_data")?),
                rs_matrix: std::mem::transmute::<*mut c_void, RsMatrix>(symbol(c"gf_gen_rs_matrix")?),
                invert_matrix: std::mem::transmute::<*mut c_void, InvertMatrix>(symbol(c"gf_invert_matrix")?),
                pq_gen: std::mem::transmute::<*mut c_void, PqGen>(symbol(c"pq_gen")?),
            })
        }
    }

    /// `gf_gen_rs_matrix`: the identity above, the parity rows below; k + m rows of k bytes.
    pub fn rs_matrix(&self, k: usize, m: usize) -> Vec<u8> {
        let mut matrix = vec![0; (k + m) * k];
        // SAFETY: it writes (k + m) * k bytes.
        unsafe { (self.rs_matrix)(matrix.as_mut_ptr(), (k + m) as c_int, k as c_int) };
        matrix
    }

    /// `gf_invert_matrix`, or `None` if the matrix is singular.
    pub fn invert(&self, matrix: &[u8], size: usize) -> Option<Vec<u8>> {
        assert_eq!(matrix.len(), size * size);
        let (mut input, mut output) = (matrix.to_vec(), vec![0; size * size]);
        // SAFETY: both hold size * size bytes; the input is ours to destroy.
        let status = unsafe { (self.invert_matrix)(input.as_mut_ptr(), output.as_mut_ptr(), size as c_int) };
        (status == 0).then_some(output)
    }

    /// `ec_init_tables` for a row of `sources` coefficients for each output.
    pub fn tables(&self, sources: usize, rows: &[u8]) -> Tables {
        let outputs = rows.len() / sources;
        assert_eq!(rows.len(), sources * outputs);
        let mut bytes = vec![0; 32 * rows.len()];
        // SAFETY: it reads sources * outputs bytes and writes 32 for each.
        unsafe { (self.init_tables)(sources as c_int, outputs as c_int, rows.as_ptr(), bytes.as_mut_ptr()) };
        Tables { bytes, sources, outputs }
    }

    /// `ec_encode_data`.
    pub fn encode(&self, tables: &Tables, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let length = checked_length(sources, outputs);
        assert_eq!((sources.len(), outputs.len()), (tables.sources, tables.outputs));
        let from: Vec<*const u8> = sources.iter().map(|source| source.as_ptr()).collect();
        let into: Vec<*mut u8> = outputs.iter_mut().map(|output| output.as_mut_ptr()).collect();
        // SAFETY: the numbers of strips are those of the tables and every strip is `length` bytes
        // long.
        unsafe {
            (self.encode_data)(
                length as c_int,
                from.len() as c_int,
                into.len() as c_int,
                tables.bytes.as_ptr(),
                from.as_ptr(),
                into.as_ptr(),
            )
        }
    }

    /// `pq_gen`, the dedicated RAID-6 kernel. Strips must be aligned to 32 bytes, lengths multiples
    /// of 32.
    pub fn pq(&self, sources: &[&[u8]], parity: &mut [&mut [u8]]) {
        let length = checked_length(sources, parity);
        assert_eq!(parity.len(), 2);
        let from = sources.iter().map(|source| source.as_ptr().cast_mut().cast());
        let mut strips: Vec<*mut c_void> = from.chain(parity.iter_mut().map(|p| p.as_mut_ptr().cast())).collect();
        assert!(
            length.is_multiple_of(32) && strips.iter().all(|strip| strip.addr() % 32 == 0),
            "pq_gen wants aligned strips"
        );
        // SAFETY: it reads all strips but the last two and writes those, each `length` bytes.
        let status = unsafe { (self.pq_gen)(strips.len() as c_int, length as c_int, strips.as_mut_ptr()) };
        assert_eq!(status, 0, "pq_gen refused");
    }
}

fn checked_length(sources: &[&[u8]], outputs: &[&mut [u8]]) -> usize {
    let length = sources[0].len();
    assert!(c_int::try_from(length).is_ok());
    assert!(sources.iter().all(|source| source.len() == length));
    assert!(outputs.iter().all(|output| output.len() == length));
    length
}
