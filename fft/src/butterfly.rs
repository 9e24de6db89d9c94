//! Complex numbers in registers, one per lane, and their shortest transforms.

use crate::lanes::Lanes;

/// Real and imaginary parts.
#[derive(Clone, Copy)]
pub(crate) struct Number<V>(pub V, pub V);

impl<V: Lanes> Number<V> {
    /// # Safety
    /// As [`Lanes::load`], for two registers; the CPU has the instructions of `V`, here and below.
    #[inline(always)]
    pub unsafe fn load(from: *const V::Part, split: bool) -> Number<V> {
        // SAFETY: the caller's promise.
        unsafe {
            let (a, b) = (V::load(from), V::load(from.add(V::LANES)));
            let (re, im) = if split { a.split(b) } else { (a, b) };
            Number(re, im)
        }
    }

    /// # Safety
    /// As `load`.
    #[inline(always)]
    pub unsafe fn store(self, to: *mut V::Part, join: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            let (a, b) = if join { self.0.join(self.1) } else { (self.0, self.1) };
            a.store(to);
            b.store(to.add(V::LANES));
        }
    }

    /// # Safety
    /// The CPU has the instructions, here and below.
    #[inline(always)]
    pub unsafe fn add(self, x: Number<V>) -> Number<V> {
        // SAFETY: the caller's promise, here and below.
        unsafe { Number(self.0.add(x.0), self.1.add(x.1)) }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    pub unsafe fn sub(self, x: Number<V>) -> Number<V> {
        // SAFETY: as above.
        unsafe { Number(self.0.sub(x.0), self.1.sub(x.1)) }
    }

    /// `self * factor + sum`, with a real factor.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    pub unsafe fn mul_add(self, factor: V, sum: Number<V>) -> Number<V> {
        // SAFETY: as above.
        unsafe { Number(self.0.mul_add(factor, sum.0), self.1.mul_add(factor, sum.1)) }
    }

    /// `sum - self * factor`, with a real factor.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    pub unsafe fn neg_mul_add(self, factor: V, sum: Number<V>) -> Number<V> {
        // SAFETY: as above.
        unsafe { Number(self.0.neg_mul_add(factor, sum.0), self.1.neg_mul_add(factor, sum.1)) }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    pub unsafe fn scale(self, factor: V) -> Number<V> {
        // SAFETY: as above.
        unsafe { Number(self.0.mul(factor), self.1.mul(factor)) }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    pub unsafe fn mul(self, x: Number<V>) -> Number<V> {
        // SAFETY: as above.
        unsafe { Number(self.0.mul_sub(x.0, self.1.mul(x.1)), self.0.mul_add(x.1, self.1.mul(x.0))) }
    }

    /// `(self - i x, self + i x)`.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    pub unsafe fn turn(self, x: Number<V>) -> (Number<V>, Number<V>) {
        // SAFETY: as above.
        unsafe { (Number(self.0.add(x.1), self.1.sub(x.0)), Number(self.0.sub(x.1), self.1.add(x.0))) }
    }
}

/// The arithmetic of constants.
pub trait Constant: Copy + 'static {
    /// The nearest number of this type.
    fn of(x: f64) -> Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
}

macro_rules! constant {
    ($($t:ty)+) => {$(
        impl Constant for $t {
            #[inline(always)]
            fn of(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: $t) -> $t {
                self - other
            }
        }
    )+};
}
constant!(f32 f64);

/// The transform of 4 numbers.
///
/// # Safety
/// The CPU has the instructions, here and below.
#[inline(always)]
unsafe fn four<V: Lanes>(x: [Number<V>; 4]) -> [Number<V>; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b, c, d) = (x[0].add(x[2]), x[0].sub(x[2]), x[1].add(x[3]), x[1].sub(x[3]));
        let (y1, y3) = b.turn(d);
        [a.add(c), y1, a.sub(c), y3]
    }
}

/// The transform of 8 numbers, from those of the even and of the odd ones.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn eight<V: Lanes<Part: Constant>>(x: [Number<V>; 8]) -> [Number<V>; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let even = four([x[0], x[2], x[4], x[6]]);
        let odd = four([x[1], x[3], x[5], x[7]]);
        let half = V::splat(V::Part::of(std::f64::consts::FRAC_1_SQRT_2));
        // Times (1 - i), and times (-1 - i).
        let one = Number(odd[1].0.add(odd[1].1), odd[1].1.sub(odd[1].0));
        let three = Number(odd[3].1.sub(odd[3].0), odd[3].0.add(odd[3].1));
        let (y2, y6) = even[2].turn(odd[2]);
        let (a, b) = (even[3].0, even[3].1);
        [
            even[0].add(odd[0]),
            one.mul_add(half, even[1]),
            y2,
            Number(three.0.mul_add(half, a), three.1.neg_mul_add(half, b)),
            even[0].sub(odd[0]),
            one.neg_mul_add(half, even[1]),
            y6,
            Number(three.0.neg_mul_add(half, a), three.1.mul_add(half, b)),
        ]
    }
}

/// The transform of 3 numbers.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn three<V: Lanes<Part: Constant>>(x: [Number<V>; 3]) -> [Number<V>; 3] {
    // SAFETY: the caller's promise.
    unsafe {
        let (half, sine) = (V::splat(V::Part::of(0.5)), V::splat(V::Part::of(0.75_f64.sqrt())));
        let (sum, difference) = (x[1].add(x[2]), x[1].sub(x[2]).scale(sine));
        let (y1, y2) = sum.neg_mul_add(half, x[0]).turn(difference);
        [x[0].add(sum), y1, y2]
    }
}

/// The transform of 5 numbers.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn five<V: Lanes<Part: Constant>>(x: [Number<V>; 5]) -> [Number<V>; 5] {
    // Cosines and sines of one and of two fifths of a circle.
    const C1: f64 = 0.309_016_994_374_947_45;
    const C2: f64 = -0.809_016_994_374_947_5;
    const S1: f64 = 0.951_056_516_295_153_5;
    const S2: f64 = 0.587_785_252_292_473_1;
    // SAFETY: the caller's promise.
    unsafe {
        let splat = |x: f64| V::splat(V::Part::of(x));
        let (c1, c2, s1, s2) = (splat(C1), splat(C2), splat(S1), splat(S2));
        let (a, b, c, d) = (x[1].add(x[4]), x[2].add(x[3]), x[1].sub(x[4]), x[2].sub(x[3]));
        let (y1, y4) = b.mul_add(c2, a.mul_add(c1, x[0])).turn(d.mul_add(s2, c.scale(s1)));
        let (y2, y3) = b.mul_add(c1, a.mul_add(c2, x[0])).turn(d.neg_mul_add(s1, c.scale(s2)));
        [x[0].add(a).add(b), y1, y2, y3, y4]
    }
}

/// The transform of 7 numbers.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn seven<V: Lanes<Part: Constant>>(x: [Number<V>; 7]) -> [Number<V>; 7] {
    // Cosines and sines of one, two and three sevenths of a circle.
    const C1: f64 = 0.623_489_801_858_733_5;
    const C2: f64 = -0.222_520_933_956_314_4;
    const C3: f64 = -0.900_968_867_902_419_1;
    const S1: f64 = 0.781_831_482_468_029_8;
    const S2: f64 = 0.974_927_912_181_823_6;
    const S3: f64 = 0.433_883_739_117_558_1;
    // SAFETY: the caller's promise.
    unsafe {
        let splat = |x: f64| V::splat(V::Part::of(x));
        let (c1, c2, c3, s1, s2, s3) = (splat(C1), splat(C2), splat(C3), splat(S1), splat(S2), splat(S3));
        let (a, b, c) = (x[1].add(x[6]), x[2].add(x[5]), x[3].add(x[4]));
        let (d, e, f) = (x[1].sub(x[6]), x[2].sub(x[5]), x[3].sub(x[4]));
        let even1 = c.mul_add(c3, b.mul_add(c2, a.mul_add(c1, x[0])));
        let even2 = c.mul_add(c1, b.mul_add(c3, a.mul_add(c2, x[0])));
        let even3 = c.mul_add(c2, b.mul_add(c1, a.mul_add(c3, x[0])));
        let (y1, y6) = even1.turn(f.mul_add(s3, e.mul_add(s2, d.scale(s1))));
        let (y2, y5) = even2.turn(f.neg_mul_add(s1, e.neg_mul_add(s3, d.scale(s2))));
        let (y3, y4) = even3.turn(f.mul_add(s2, e.neg_mul_add(s1, d.scale(s3))));
        [x[0].add(a).add(b).add(c), y1, y2, y3, y4, y5, y6]
    }
}

/// The transform of 16 numbers: four transforms of 4, twiddles, and four transforms of 4.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn sixteen<V: Lanes<Part: Constant>>(x: [Number<V>; 16]) -> [Number<V>; 16] {
    const C: f64 = 0.923_879_532_511_286_7;
    const S: f64 = 0.382_683_432_365_089_8;
    const H: f64 = std::f64::consts::FRAC_1_SQRT_2;
    // SAFETY: the caller's promise.
    unsafe {
        let w = |re: f64, im: f64| Number(V::splat(V::Part::of(re)), V::splat(V::Part::of(im)));
        let a = four([x[0], x[4], x[8], x[12]]);
        let b = four([x[1], x[5], x[9], x[13]]);
        let c = four([x[2], x[6], x[10], x[14]]);
        let d = four([x[3], x[7], x[11], x[15]]);
        let h = w(H, 0.0).0;
        // Times (1 - i) / √2, times -i, times (-1 - i) / √2.
        let c1 = Number(c[1].0.add(c[1].1), c[1].1.sub(c[1].0)).scale(h);
        let b2 = Number(b[2].0.add(b[2].1), b[2].1.sub(b[2].0)).scale(h);
        let minus = V::splat(V::Part::of(-H));
        let c3 = Number(c[3].0.sub(c[3].1).mul(minus), c[3].0.add(c[3].1).mul(minus));
        let d2 = Number(d[2].0.sub(d[2].1).mul(minus), d[2].0.add(d[2].1).mul(minus));
        let y0 = four([a[0], b[0], c[0], d[0]]);
        let y1 = four([a[1], b[1].mul(w(C, -S)), c1, d[1].mul(w(S, -C))]);
        // The third is multiplied by -i, by way of its sum and difference with the first.
        let (e, f) = a[2].turn(c[2]);
        let (g, h) = (b2.add(d2), b2.sub(d2));
        let (y21, y23) = f.turn(h);
        let y2 = [e.add(g), y21, e.sub(g), y23];
        let y3 = four([a[3], b[3].mul(w(S, -C)), c3, d[3].mul(w(-C, S))]);
        [y0[0], y1[0], y2[0], y3[0], y0[1], y1[1], y2[1], y3[1], y0[2], y1[2], y2[2], y3[2], y0[3], y1[3], y2[3], y3[3]]
    }
}

/// # Safety
/// As above. `R` is one of [`RADICES`](crate::kernels::RADICES).
#[inline(always)]
pub(crate) unsafe fn butterfly<V: Lanes<Part: Constant>, const R: usize>(x: &mut [Number<V>; R]) {
    // SAFETY: the caller's promise. The compiler removes the arms of other lengths.
    unsafe {
        if let Ok(x) = <&mut [Number<V>; 2]>::try_from(&mut x[..]) {
            (x[0], x[1]) = (x[0].add(x[1]), x[0].sub(x[1]));
        } else if let Ok(x) = <&mut [Number<V>; 3]>::try_from(&mut x[..]) {
            *x = three(*x);
        } else if let Ok(x) = <&mut [Number<V>; 4]>::try_from(&mut x[..]) {
            *x = four(*x);
        } else if let Ok(x) = <&mut [Number<V>; 5]>::try_from(&mut x[..]) {
            *x = five(*x);
        } else if let Ok(x) = <&mut [Number<V>; 7]>::try_from(&mut x[..]) {
            *x = seven(*x);
        } else if let Ok(x) = <&mut [Number<V>; 8]>::try_from(&mut x[..]) {
            *x = eight(*x);
        } else if let Ok(x) = <&mut [Number<V>; 16]>::try_from(&mut x[..]) {
            *x = sixteen(*x);
        }
    }
}
