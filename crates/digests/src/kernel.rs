//! The compression function of MD5 (RFC 1321), over one stream and over several side by side.
//!
//! A step of MD5 waits for the previous step, so that one stream leaves most of a core idle: lanes
//! fill it with other streams. The better one of AVX-512 and AVX2 is chosen at run time. A
//! processor with neither has no lanes, and compresses every stream by itself.

mod scalar;
#[cfg(target_arch = "x86_64")]
mod vectors;

/// Bytes of one compression.
pub const BLOCK: usize = 64;

/// The four words of a stream's state.
pub type State = [u32; 4];

pub const START: State = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];

/// The constant of each step: the whole part of 2^32 |sin(step + 1)|.
const SINES: [u32; 64] = [
    0xD76A_A478,
    0xE8C7_B756,
    0x2420_70DB,
    0xC1BD_CEEE,
    0xF57C_0FAF,
    0x4787_C62A,
    0xA830_4613,
    0xFD46_9501,
    0x6980_98D8,
    0x8B44_F7AF,
    0xFFFF_5BB1,
    0x895C_D7BE,
    0x6B90_1122,
    0xFD98_7193,
    0xA679_438E,
    0x49B4_0821,
    0xF61E_2562,
    0xC040_B340,
    0x265E_5A51,
    0xE9B6_C7AA,
    0xD62F_105D,
    0x0244_1453,
    0xD8A1_E681,
    0xE7D3_FBC8,
    0x21E1_CDE6,
    0xC337_07D6,
    0xF4D5_0D87,
    0x455A_14ED,
    0xA9E3_E905,
    0xFCEF_A3F8,
    0x676F_02D9,
    0x8D2A_4C8A,
    0xFFFA_3942,
    0x8771_F681,
    0x6D9D_6122,
    0xFDE5_380C,
    0xA4BE_EA44,
    0x4BDE_CFA9,
    0xF6BB_4B60,
    0xBEBF_BC70,
    0x289B_7EC6,
    0xEAA1_27FA,
    0xD4EF_3085,
    0x0488_1D05,
    0xD9D4_D039,
    0xE6DB_99E5,
    0x1FA2_7CF8,
    0xC4AC_5665,
    0xF429_2244,
    0x432A_FF97,
    0xAB94_23A7,
    0xFC93_A039,
    0x655B_59C3,
    0x8F0C_CC92,
    0xFFEF_F47D,
    0x8584_5DD1,
    0x6FA8_7E4F,
    0xFE2C_E6E0,
    0xA301_4314,
    0x4E08_11A1,
    0xF753_7E82,
    0xBD3A_F235,
    0x2AD7_D2BB,
    0xEB86_D391,
];

/// A way to compress several streams in parallel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// One stream after another.
    Scalar,
    /// Eight lanes.
    Avx2,
    /// Sixteen lanes, or the eight of AVX2 if those suffice.
    Avx512,
}

impl Kernel {
    /// The fastest kernel of this processor.
    pub fn best() -> Kernel {
        Kernel::available().last().copied().unwrap_or(Kernel::Scalar)
    }

    /// Every kernel of this processor, slowest first.
    pub fn available() -> Vec<Kernel> {
        [Kernel::Scalar, Kernel::Avx2, Kernel::Avx512].into_iter().filter(|kernel| kernel.runs_here()).collect()
    }

    /// Number of streams compressed at once.
    pub fn lanes(self) -> usize {
        match self {
            Kernel::Scalar => 1,
            Kernel::Avx2 => 8,
            Kernel::Avx512 => 16,
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn runs_here(self) -> bool {
        match self {
            Kernel::Scalar => true,
            Kernel::Avx2 => vectors::has_avx2(),
            Kernel::Avx512 => vectors::has_avx512() && vectors::has_avx2(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn runs_here(self) -> bool {
        self == Kernel::Scalar
    }

    /// Folds the first `count` blocks of each stream into its state.
    ///
    /// # Panics
    /// If there are more streams than lanes, or one of them is shorter.
    pub fn compress(self, states: &mut [State], streams: &[&[u8]], count: usize) {
        assert!(states.len() == streams.len() && states.len() <= self.lanes(), "a lane for each stream");
        assert!(streams.iter().all(|stream| stream.len() >= count * BLOCK), "{count} blocks of each stream");
        match (self, states) {
            // AVX-512 with half of its lanes takes longer than AVX2 with all of its lanes.
            #[cfg(target_arch = "x86_64")]
            (Kernel::Avx512, states) if states.len() > 8 => vectors::avx512(states, streams, count),
            #[cfg(target_arch = "x86_64")]
            (Kernel::Avx2 | Kernel::Avx512, states) if states.len() > 1 => vectors::avx2(states, streams, count),
            (_, states) => states
                .iter_mut()
                .zip(streams)
                .for_each(|(state, stream)| scalar::compress(state, &stream[..count * BLOCK])),
        }
    }
}

#[cfg(test)]
mod tests;
