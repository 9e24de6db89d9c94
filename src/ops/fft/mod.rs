//! Fourier transforms and signals.
//!
//! - `transforms`, `nd`: transforms along one and along several dimensions. `stft`: of the frames of a signal.
//! - `windows`, `signal_windows`: window functions, as those of `torch` and of `torch.signal.windows`.

files! { nd signal_windows stft transforms windows }
