//! Fourier transforms and signals.
//!
//! - `transforms`, `nd`: transforms along one or several dimensions. `stft`: the short-time Fourier transform. The kernels are
//!   the crate `cotangent-fft` on the CPU, whose page describes the algorithms, and cuFFT on a GPU.
//! - `windows`, `signal_windows`: the window functions of `torch` and of `torch.signal.windows`.

files! { nd signal_windows stft transforms windows }
