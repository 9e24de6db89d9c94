//! The settings of optimisers by name: reading, changing, saving and checking them is the same for all.

use crate::Result;
use crate::error::bail;

/// A setting in its place.
pub(crate) type Setting<'a> = &'a mut dyn SettingValue;

/// Settings with their names.
pub(crate) type Settings<'a> = Vec<(&'static str, Setting<'a>)>;

/// The value of a setting. It is saved as a number.
pub(crate) trait SettingValue {
    fn get(&self) -> f64;
    fn set(&mut self, number: f64);
}

impl SettingValue for f64 {
    fn get(&self) -> f64 {
        *self
    }

    fn set(&mut self, number: f64) {
        *self = number;
    }
}

impl SettingValue for bool {
    fn get(&self) -> f64 {
        f64::from(u8::from(*self))
    }

    fn set(&mut self, number: f64) {
        *self = number != 0.0;
    }
}

impl SettingValue for usize {
    fn get(&self) -> f64 {
        *self as f64
    }

    fn set(&mut self, number: f64) {
        *self = number as usize;
    }
}

/// `None` is saved as NaN.
impl SettingValue for Option<f64> {
    fn get(&self) -> f64 {
        self.unwrap_or(f64::NAN)
    }

    fn set(&mut self, number: f64) {
        *self = Some(number).filter(|number| !number.is_nan());
    }
}

impl SettingValue for Option<usize> {
    fn get(&self) -> f64 {
        self.map_or(f64::NAN, |count| count as f64)
    }

    fn set(&mut self, number: f64) {
        *self = Some(number).filter(|number| !number.is_nan()).map(|number| number as usize);
    }
}

/// Settings by their names: `settings!(self: lr, nesterov)`.
macro_rules! settings {
    ($own:ident: $($name:ident),+) => {
        vec![$((stringify!($name), &mut $own.$name as $crate::optim::settings::Setting<'_>)),+]
    };
}
pub(crate) use settings;

/// A setting by its name.
pub(super) fn number_of(settings: &[(&'static str, Setting<'_>)], name: &str) -> Option<f64> {
    settings.iter().find(|(own, _)| *own == name).map(|(_, value)| value.get())
}

pub(super) fn set_number(settings: Settings<'_>, name: &str, number: f64) {
    if let Some((_, value)) = settings.into_iter().find(|(own, _)| *own == name) {
        value.set(number);
    }
}

/// Sets one setting of each group.
pub(super) fn set_numbers(
    (op, optimizer): (&'static str, &str),
    groups: Vec<Settings<'_>>,
    name: &str,
    numbers: &[f64],
) -> Result<()> {
    if numbers.len() != groups.len() {
        bail!(Value, op, "expected {} values for the groups of {optimizer}, got {}", groups.len(), numbers.len());
    }
    groups.into_iter().zip(numbers).for_each(|(group, &number)| set_number(group, name, number));
    Ok(())
}

/// The settings of all groups under the names they are saved by.
pub(super) fn saved_settings(groups: Vec<Settings<'_>>) -> Vec<(String, Setting<'_>)> {
    let mut all = Vec::new();
    for (at, settings) in groups.into_iter().enumerate() {
        let prefix = at.checked_sub(1).map_or_else(String::new, |group| format!("group.{group}."));
        all.extend(settings.into_iter().map(|(name, own)| (format!("{prefix}{name}"), own)));
    }
    all
}

/// Checks that betas are in [0, 1).
pub(crate) fn check_betas(op: &'static str, betas: impl IntoIterator<Item = f64>) -> Result<()> {
    for beta in betas {
        if !(0.0..1.0).contains(&beta) {
            bail!(Value, op, "beta1 and beta2 must be in [0, 1), got {beta}");
        }
    }
    Ok(())
}

/// The sign of gradients: -1 if the loss is maximised.
pub(crate) fn sign(maximize: bool) -> f64 {
    if maximize { -1.0 } else { 1.0 }
}

/// Checks that a number is not negative or NaN.
pub(crate) fn not_negative(op: &'static str, what: &str, number: f64) -> Result<()> {
    if number.is_nan() || number < 0.0 {
        bail!(Value, op, "{what} must be ≥ 0, got {number}");
    }
    Ok(())
}
