//! Linear layers on shares without rotation, one polynomial a ciphertext (Akherati, Zhang; `protocols`, section 7). The
//! cryptography, its bounds and what each party sees: [`hushnet_rlwe::one_poly`]; the places: [`Layout`].
//!
//! Set-up, once for a model (the same for every client): the client collects [`RotationFreeLinear::setup_poly`] into a [`Setup`], which can be
//! stored and continued. Before an input is known: [`RotationFreeClient::prepare`] and [`RotationFreeLinear::share`]. Then, tile by
//! tile, [`RotationFreeClient::request`] -> [`RotationFreeLinear::answer`] -> [`RotationFreeClient::open`]. Both parties then hold shares
//! of the layer modulo 2^l that sum to it, one unit off in the fraction that [`OnePolySpec::off_by_one_fraction`] states.
//! Operations and bytes: exactly [`Design::cost`].
//!
//! [`published`] reruns the paper's own parameters, which leak weights.

mod layout;
pub mod published;
mod setup;

pub use hushnet_rlwe::one_poly::{Profile, TallyCounts};
pub use layout::{Layout, LayoutCost, LayoutPrices};
pub use setup::Setup;

use crate::batch::{expect, Geometry, LayerError};
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::one_poly::{
    Blind, Folded, OnePolyClient, OnePolyContext, OnePolyParams, OnePolyServer, OnePolySpec, Tally, WeightKey,
};
use hushnet_rlwe::CipherError;
use rayon::prelude::*;
use zeroize::Zeroize;

/// Measured on one core for both parties together, with the set-up spread over a hundred queries; only ratios matter.
pub const DEFAULT_PRICES: LayoutPrices =
    LayoutPrices { input: 260e-6, output: 10e-9, output_poly: 2e-6, product: 12e-6, weight: 8e-6 };
/// Ring degrees worth trying.
const DEGREES: [usize; 3] = [4096, 8192, 16384];

/// Layout and parameters of a layer: all that both parties need to agree on. Public.
#[derive(Clone, Debug)]
pub struct Design {
    geometry: Geometry,
    layout: Layout,
    params: OnePolyParams,
    stage: u32,
}

/// Operations and bytes for one image, exactly as run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodCost {
    /// Client, before the input is known.
    pub client_offline: TallyCounts,
    /// Client, afterwards.
    pub client_online: TallyCounts,
    /// Server, before the query.
    pub server_offline: TallyCounts,
    /// Server, afterwards.
    pub server_online: TallyCounts,
    /// Server, once for a model: keys and what is sent.
    pub setup: TallyCounts,
    /// Bytes of all requests.
    pub bytes_up: usize,
    /// Bytes of all answers.
    pub bytes_down: usize,
    /// Bytes of the set-up.
    pub bytes_setup: usize,
}

/// What a plan says about the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightBounds {
    /// Bound of the Euclidean norm of the weights that meet in one answer polynomial.
    pub l2: f64,
    /// w: weights are below 2^(w-1) in magnitude.
    pub bits: u32,
}

impl Design {
    /// For a ring degree and bounds of the weights, as a plan states them.
    ///
    /// # Errors
    /// What [`Layout::choose`] and [`OnePolySpec::choose`] refuse.
    pub fn new(
        geometry: &Geometry,
        ring_degree: usize,
        ring_bits: u32,
        bounds: WeightBounds,
        profile: Profile,
        stage: u32,
    ) -> Result<Self, LayerError> {
        let layout = Layout::choose(geometry, ring_degree, &DEFAULT_PRICES)?;
        Self::with_layout(geometry, layout, ring_bits, bounds, profile, stage)
    }

    /// With a layout of one's own choice.
    ///
    /// # Errors
    /// What [`OnePolySpec::choose`] refuses.
    pub fn with_layout(
        geometry: &Geometry,
        layout: Layout,
        ring_bits: u32,
        bounds: WeightBounds,
        profile: Profile,
        stage: u32,
    ) -> Result<Self, LayerError> {
        let spec = OnePolySpec {
            ring_degree: layout.degree(),
            ring_bits,
            weight_l2: bounds.l2,
            weight_bits: bounds.bits,
            weights: layout.weight_len(),
            terms: layout.terms(),
            profile,
        };
        Ok(Self { geometry: *geometry, params: spec.choose()?, layout, stage })
    }

    /// At the smallest ring degree that is secure for these weights; the norm is rounded up to a power of two, the width to whole bits.
    ///
    /// # Errors
    /// [`LayerError::Length`] for the wrong number of weights; what [`Self::new`] refuses.
    pub fn for_weights(
        geometry: &Geometry,
        weights: &[i16],
        ring_bits: u32,
        profile: Profile,
        stage: u32,
    ) -> Result<Self, LayerError> {
        let largest = weights.iter().map(|w| w.unsigned_abs()).max().unwrap_or(0);
        let bits = 17 - largest.leading_zeros();
        let mut refused = None;
        for n in DEGREES {
            let layout = match Layout::choose(geometry, n, &DEFAULT_PRICES) {
                Ok(layout) => layout,
                Err(e) => {
                    refused = Some(e);
                    continue;
                }
            };
            expect("weights", layout.weight_len(), weights.len())?;
            let l2 = (layout.weight_norm2(weights).max(1) as f64).sqrt().log2().ceil().exp2();
            match Self::with_layout(geometry, layout, ring_bits, WeightBounds { l2, bits }, profile, stage) {
                Ok(design) => return Ok(design),
                Err(e) => refused = Some(e),
            }
        }
        let insecure = CipherError::Insecure { ring_degree: DEGREES[2], modulus_bits: 0 };
        Err(refused.unwrap_or_else(|| insecure.into()))
    }

    /// Places.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Parameters.
    #[must_use]
    pub fn params(&self) -> &OnePolyParams {
        &self.params
    }

    /// The layer.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn profile(&self) -> Profile {
        self.params.spec().profile
    }

    /// Polynomials that the set-up sends for every weight polynomial.
    fn setup_parts(&self) -> usize {
        match self.profile() {
            Profile::Compact => 1,
            Profile::Flooded => 2,
        }
    }

    fn context(&self) -> Result<OnePolyContext, LayerError> {
        Ok(OnePolyContext::new(self.layout.degree(), self.params.prime_bits(), self.layout.spacing())?)
    }

    fn poly_len(&self) -> usize {
        self.params.prime_bits().iter().map(|b| pack::packed_len(self.layout.degree(), *b)).sum()
    }

    /// Bytes of a request (of any tile).
    #[must_use]
    pub fn request_len(&self) -> usize {
        self.layout.input_blocks() * self.poly_len()
    }

    /// Bytes of the answer to a tile.
    #[must_use]
    pub fn answer_len(&self, tile: usize) -> usize {
        let r = self.params.response_bits();
        (0..self.layout.output_blocks()).map(|j| pack::packed_len(self.layout.output_count(tile, j), r)).sum()
    }

    /// Bytes of one weight polynomial's set-up.
    #[must_use]
    pub fn setup_poly_len(&self) -> usize {
        self.setup_parts() * self.poly_len()
    }

    /// Operations and bytes for one image.
    #[must_use]
    pub fn cost(&self) -> MethodCost {
        let c = self.layout.cost();
        let (inputs, outputs) = (c.input_polys as u64, c.output_polys as u64);
        let (products, weights) = (c.products as u64, c.weight_polys as u64);
        let count = |ntt, intt, products| TallyCounts { ntt, intt, products, rotations: 0 };
        let compact = self.profile() == Profile::Compact;
        MethodCost {
            client_offline: if compact {
                count(2 * inputs, outputs, inputs + products)
            } else {
                count(2 * inputs, 0, inputs)
            },
            client_online: if compact { count(inputs, 0, 0) } else { count(inputs, outputs, 2 * products) },
            server_offline: if compact { count(inputs, 0, 0) } else { count(inputs, outputs, products) },
            server_online: count(0, outputs, products),
            setup: if compact { count(2 * weights, 0, weights) } else { count(4 * weights, 0, weights) },
            bytes_up: self.layout.tiles() * self.request_len(),
            bytes_down: (0..self.layout.tiles()).map(|t| self.answer_len(t)).sum(),
            bytes_setup: setup::HEADER + c.weight_polys * self.setup_poly_len(),
        }
    }
}

/// Weights as an answer uses them.
enum Keys {
    /// One a weight polynomial.
    Prepared(Vec<WeightKey>),
    /// Made anew for every tile, for layers whose keys do not fit the memory.
    Streamed,
}

/// Server half of a stage. No `Debug`.
pub struct RotationFreeLinear {
    design: Design,
    server: OnePolyServer,
    seed: [u8; 32],
    weights: Vec<i16>,
    bias: Vec<i64>,
    keys: Keys,
    /// First weight polynomial of every output block.
    first: Vec<usize>,
    tally: Tally,
}

/// What the server makes of its share of a tile before the query arrives.
pub struct ServerShare {
    /// Compact: the share's transforms.
    polys: Vec<Folded>,
    /// Flooded: the useful coefficients of its product with the weights, for every output block.
    sums: Vec<Vec<u64>>,
}

impl Drop for ServerShare {
    fn drop(&mut self) {
        self.polys.iter_mut().for_each(Zeroize::zeroize);
        self.sums.zeroize();
    }
}

impl RotationFreeLinear {
    /// Prepares a stage: draws its set-up. `weights` are (O, C/groups, kh, kw) or (M, K) row-major, `bias` one value an output channel, added
    /// modulo 2^l. With `streamed`, keys are made anew for every tile.
    ///
    /// # Errors
    /// [`LayerError::Length`] for the wrong number of weights or biases; [`LayerError::Size`] for weights beyond the design's bounds.
    pub fn new(
        design: &Design,
        weights: &[i16],
        bias: &[i64],
        streamed: bool,
        prg: &mut Prg,
    ) -> Result<Self, LayerError> {
        let layout = &design.layout;
        expect("weights", layout.weight_len(), weights.len())?;
        expect("biases", layout.channels_out(), bias.len())?;
        let norm = (layout.weight_norm2(weights) as f64).sqrt();
        let most = design.params.spec().weight_l2;
        if norm > most {
            return Err(LayerError::Size {
                what: "norm of the weights in one answer",
                got: norm.ceil() as usize,
                least: 0,
                most: most as usize,
            });
        }
        let largest = weights.iter().map(|w| usize::from(w.unsigned_abs())).max().unwrap_or(0);
        let bound = 1usize << (design.params.spec().weight_bits.clamp(1, 16) - 1);
        if largest > bound {
            return Err(LayerError::Size { what: "largest weight", got: largest, least: 0, most: bound });
        }
        let mut seed = [0; 32];
        prg.fill_bytes(&mut seed);
        let context = design.context()?;
        let server = OnePolyServer::new(&context, &design.params, &seed, design.stage, prg)?;
        let first = (0..layout.output_blocks())
            .scan(0, |sum, j| {
                let first = *sum;
                *sum += layout.inputs_of(j).len();
                Some(first)
            })
            .collect();
        let mut linear = Self {
            design: design.clone(),
            server,
            seed,
            weights: weights.to_vec(),
            bias: bias.to_vec(),
            keys: Keys::Streamed,
            first,
            tally: Tally::default(),
        };
        if !streamed {
            let polys: Vec<(usize, usize)> = linear.polys().collect();
            let keys = polys
                .into_par_iter()
                .enumerate()
                .map(|(k, (i, j))| Ok(linear.key(k, i, j, false)?.0))
                .collect::<Result<_, LayerError>>()?;
            linear.keys = Keys::Prepared(keys);
        }
        Ok(linear)
    }

    /// (input block, output block) of every weight polynomial.
    fn polys(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let layout = &self.design.layout;
        (0..layout.output_blocks()).flat_map(|j| layout.inputs_of(j).map(move |i| (i, j)))
    }

    fn key(
        &self,
        k: usize,
        i: usize,
        j: usize,
        public: bool,
    ) -> Result<(WeightKey, Vec<Folded>), LayerError> {
        let mut poly = self.design.layout.weight_poly(&self.weights, i, j);
        let result = self.server.weight_key(&poly, k as u32, public, &self.tally);
        poly.zeroize();
        Ok(result?)
    }

    /// What both parties agree on.
    #[must_use]
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// Operations so far.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }

    /// Bytes that the weights take.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        let per_key = self.design.setup_parts() * 8 * self.server.context().words();
        2 * self.weights.len()
            + match &self.keys {
                Keys::Prepared(keys) => keys.len() * per_key,
                Keys::Streamed => 0,
            }
    }

    /// What opens a [`Setup`].
    #[must_use]
    pub fn setup_header(&self) -> Vec<u8> {
        setup::header(&self.design, &self.seed)
    }

    /// The set-up of weight polynomial `k`; always the same bytes.
    ///
    /// # Errors
    /// [`LayerError::Length`] when there is no such polynomial.
    pub fn setup_poly(&self, k: usize) -> Result<Vec<u8>, LayerError> {
        let j = self.first.partition_point(|f| *f <= k).saturating_sub(1);
        let inputs = self.design.layout.inputs_of(j);
        if k - self.first[j] >= inputs.len() {
            let expected = self.design.layout.cost().weight_polys;
            return Err(LayerError::Length { what: "weight polynomial (below)", expected, got: k });
        }
        let (_, sent) = self.key(k, inputs.start + k - self.first[j], j, true)?;
        let context = self.server.context();
        let mut bytes = vec![0; self.design.setup_poly_len()];
        for (poly, part) in sent.iter().zip(bytes.chunks_exact_mut(context.packed_len())) {
            context.pack(poly, part)?;
        }
        Ok(bytes)
    }

    /// Keys of the terms of output block `j`, made where they are not kept.
    fn keys_of(&self, j: usize) -> Result<std::borrow::Cow<'_, [WeightKey]>, LayerError> {
        let (first, inputs) = (self.first[j], self.design.layout.inputs_of(j));
        Ok(match &self.keys {
            Keys::Prepared(keys) => keys[first..first + inputs.len()].into(),
            Keys::Streamed => inputs
                .enumerate()
                .map(|(k, i)| Ok(self.key(first + k, i, j, false)?.0))
                .collect::<Result<Vec<_>, LayerError>>()?
                .into(),
        })
    }

    fn torus(
        &self,
        tile: usize,
        j: usize,
        pairs: &[(&Folded, &Folded)],
    ) -> Result<(Vec<u64>, Vec<usize>), LayerError> {
        let context = self.server.context();
        let (places, elements) = self.design.layout.output_places(tile, j, context.fold());
        Ok((context.torus(&context.dot(pairs, &self.tally)?, &places)?, elements))
    }

    /// Prepares the server's share (of the whole input tensor) for a tile.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless `share` is the whole tensor.
    pub fn share(&self, tile: usize, share: &[u64]) -> Result<ServerShare, LayerError> {
        let layout = &self.design.layout;
        expect("input share", layout.input_len(), share.len())?;
        let polys: Vec<Folded> = (0..layout.input_blocks())
            .into_par_iter()
            .map(|i| {
                let mut poly = vec![0; layout.degree()];
                layout.for_each_input(tile, i, |at, e| poly[at] = share[e]);
                Ok(self.server.share(&poly, &self.tally)?)
            })
            .collect::<Result<_, LayerError>>()?;
        if self.design.profile() == Profile::Compact {
            return Ok(ServerShare { polys, sums: Vec::new() });
        }
        let sums = (0..layout.output_blocks())
            .into_par_iter()
            .map(|j| {
                let keys = self.keys_of(j)?;
                let pairs: Vec<_> = polys[layout.inputs_of(j)]
                    .iter()
                    .zip(keys.iter())
                    .filter_map(|(s, k)| k.weights().map(|w| (s, w)))
                    .collect();
                Ok(self.torus(tile, j, &pairs)?.0)
            })
            .collect::<Result<_, LayerError>>()?;
        Ok(ServerShare { polys, sums })
    }

    /// Answers one tile; writes the server's share of its outputs (bias included) into `own`, the whole output tensor.
    ///
    /// # Errors
    /// [`LayerError::Length`] for a request of the wrong length or shares of the wrong size; [`LayerError::Cipher`] for words that are not
    /// below their primes.
    pub fn answer(
        &self,
        tile: usize,
        share: &ServerShare,
        request: &[u8],
        own: &mut [u64],
    ) -> Result<Vec<u8>, LayerError> {
        let (layout, context) = (&self.design.layout, self.server.context());
        expect("request", self.design.request_len(), request.len())?;
        expect("output share", layout.output_len(), own.len())?;
        let inputs: Vec<Folded> = request
            .par_chunks_exact(context.packed_len())
            .zip(&share.polys)
            .map(|(bytes, share)| {
                let mut c0 = context.unpack(bytes)?;
                if self.design.profile() == Profile::Compact {
                    context.sub_assign(&mut c0, share)?;
                }
                Ok(c0)
            })
            .collect::<Result<_, LayerError>>()?;
        let r = self.design.params.response_bits();
        type Part = (Vec<u8>, Vec<usize>, Vec<u64>);
        let parts: Vec<Part> = (0..layout.output_blocks())
            .into_par_iter()
            .map(|j| {
                let keys = self.keys_of(j)?;
                let pairs: Vec<_> =
                    inputs[layout.inputs_of(j)].iter().zip(keys.iter().map(WeightKey::rho)).collect();
                let (mut sums, elements) = self.torus(tile, j, &pairs)?;
                if let Some(extra) = share.sums.get(j) {
                    sums.iter_mut().zip(extra).for_each(|(s, x)| *s = s.wrapping_add(*x));
                }
                let (answer, shares) = self.server.mask(&mut Prg::from_os()?, &sums);
                sums.zeroize();
                let mut bytes = vec![0; pack::packed_len(answer.len(), r)];
                pack::pack(&answer, r, &mut bytes)?;
                Ok((bytes, elements, shares))
            })
            .collect::<Result<_, LayerError>>()?;
        let mask = hushnet_ring::low_mask(self.design.params.ring_bits());
        let pixels = layout.output_len() / layout.channels_out();
        let mut message = Vec::with_capacity(self.design.answer_len(tile));
        for (bytes, elements, shares) in parts {
            message.extend_from_slice(&bytes);
            for (e, value) in elements.into_iter().zip(shares) {
                own[e] = value.wrapping_add(self.bias[e / pixels] as u64) & mask;
            }
        }
        Ok(message)
    }
}

/// Client half of a stage: no key, only the set-up.
pub struct RotationFreeClient {
    design: Design,
    client: OnePolyClient,
    setup: Vec<Vec<Folded>>,
    tally: Tally,
}

/// One query of one tile, before its answer. No `Debug`; wiped on drop.
pub struct Prepared {
    tile: usize,
    blinds: Vec<Blind>,
    /// The client's own part, for every output block; compact: made before the query.
    own: Vec<Vec<u64>>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.own.zeroize();
    }
}

impl RotationFreeClient {
    /// With a complete set-up.
    ///
    /// # Errors
    /// [`LayerError::Length`] when the set-up is incomplete; [`LayerError::Cipher`] for words that are not below their primes.
    pub fn new(design: &Design, setup: &Setup) -> Result<Self, LayerError> {
        expect("weight polynomials of the set-up", design.layout.cost().weight_polys, setup.received())?;
        setup.check(design)?;
        let context = design.context()?;
        let polys = setup
            .polys()
            .map(|bytes| {
                bytes
                    .chunks_exact(context.packed_len())
                    .map(|part| Ok(context.unpack(part)?))
                    .collect::<Result<_, LayerError>>()
            })
            .collect::<Result<_, LayerError>>()?;
        let client = OnePolyClient::new(&context, &design.params, setup.seed(), design.stage)?;
        Ok(Self { design: design.clone(), client, setup: polys, tally: Tally::default() })
    }

    /// What both parties agree on.
    #[must_use]
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// Operations so far.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }

    /// The client's part of every output block.
    fn own(&self, tile: usize, blinds: &[Blind]) -> Result<Vec<Vec<u64>>, LayerError> {
        let (layout, context) = (&self.design.layout, self.client.context());
        let first: Vec<usize> = (0..layout.output_blocks())
            .scan(0, |sum, j| {
                *sum += layout.inputs_of(j).len();
                Some(*sum - layout.inputs_of(j).len())
            })
            .collect();
        (0..layout.output_blocks())
            .into_par_iter()
            .map(|j| {
                let inputs = layout.inputs_of(j);
                let setup = &self.setup[first[j]..first[j] + inputs.len()];
                let blinds = &blinds[inputs];
                let mut pairs: Vec<_> =
                    blinds.iter().map(Blind::secret).zip(setup.iter().map(|s| &s[0])).collect();
                if self.design.profile() == Profile::Flooded {
                    let second = blinds.iter().zip(setup);
                    pairs.extend(second.filter_map(|(b, s)| Some((b.share()?, s.get(1)?))));
                }
                let (places, _) = layout.output_places(tile, j, context.fold());
                Ok(context.torus(&context.dot(&pairs, &self.tally)?, &places)?)
            })
            .collect()
    }

    /// All of a query that does not depend on the input.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn prepare(&self, tile: usize) -> Result<Prepared, LayerError> {
        let blinds = (0..self.design.layout.input_blocks())
            .into_par_iter()
            .map(|_| Ok(self.client.blind(&mut Prg::from_os()?, &self.tally)?))
            .collect::<Result<Vec<_>, LayerError>>()?;
        let own = match self.design.profile() {
            Profile::Compact => self.own(tile, &blinds)?,
            Profile::Flooded => Vec::new(),
        };
        Ok(Prepared { tile, blinds, own })
    }

    /// Encrypts the prepared tile of the client's share of the input tensor. A [`Prepared`] serves one request.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless `share` is the whole tensor.
    pub fn request(&self, prepared: &mut Prepared, share: &[u64]) -> Result<Vec<u8>, LayerError> {
        let layout = &self.design.layout;
        expect("input share", layout.input_len(), share.len())?;
        let mut message = vec![0; self.design.request_len()];
        message
            .par_chunks_exact_mut(self.client.context().packed_len())
            .zip(prepared.blinds.par_iter_mut())
            .enumerate()
            .try_for_each(|(i, (bytes, blind))| {
                let mut poly = vec![0; layout.degree()];
                layout.for_each_input(prepared.tile, i, |at, e| poly[at] = share[e]);
                self.client.request(blind, &poly, bytes, &self.tally)?;
                poly.zeroize();
                Ok::<(), LayerError>(())
            })?;
        if self.design.profile() == Profile::Flooded {
            prepared.own = self.own(prepared.tile, &prepared.blinds)?;
        }
        Ok(message)
    }

    /// Reads the client's share of a tile's outputs into its share of the whole output tensor.
    ///
    /// # Errors
    /// [`LayerError::Length`] for an answer of the wrong length or a share of the wrong size.
    pub fn open(&self, prepared: &Prepared, answer: &[u8], share: &mut [u64]) -> Result<(), LayerError> {
        let (layout, r) = (&self.design.layout, self.design.params.response_bits());
        expect("answer", self.design.answer_len(prepared.tile), answer.len())?;
        expect("output share", layout.output_len(), share.len())?;
        expect("client parts", layout.output_blocks(), prepared.own.len())?;
        let mut rest = answer;
        for (j, own) in prepared.own.iter().enumerate() {
            let (part, after) = rest.split_at(pack::packed_len(own.len(), r));
            rest = after;
            let (mut words, mut out) = (vec![0; own.len()], vec![0; own.len()]);
            pack::unpack(part, r, &mut words)?;
            self.client.open(&words, own, &mut out)?;
            let (_, elements) = layout.output_places(prepared.tile, j, 1);
            for (e, value) in elements.into_iter().zip(out) {
                share[e] = value;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
