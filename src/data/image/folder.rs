//! Image files.

use super::Image;
use super::transforms::Transform;
use crate::data::Dataset;
use crate::error::{bail, err};
use crate::{Error, Result};
use cotangent_macros::named;
use image::{ImageError, ImageReader};
use std::io::Cursor;
use std::path::{Path, PathBuf};

const EXTENSIONS: [&str; 3] = ["jpg", "jpeg", "png"];

impl Image {
    /// Reads a JPEG or PNG file as an RGB image. Transparency is dropped.
    ///
    /// # Errors
    /// If the file cannot be read or is not an image.
    #[named("Image::open")]
    pub fn open(path: impl AsRef<Path>) -> Result<Image> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|e| Error::io("Image::open", path, e))?;
        decode("Image::open", &bytes).map_err(|e| e.context(path.display()))
    }

    /// As [`open`](Self::open), from the bytes of a file.
    ///
    /// # Errors
    /// If the bytes are not an image.
    #[named("Image::decode")]
    pub fn decode(bytes: &[u8]) -> Result<Image> {
        decode("Image::decode", bytes)
    }
}

fn decode(op: &'static str, bytes: &[u8]) -> Result<Image> {
    let failed = |e: ImageError| err!(Format, op, "{e}");
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format();
    // The crate's own limit: at most 512 MiB for an image.
    let image = reader.map_err(|e| failed(e.into()))?.decode().map_err(failed)?;
    let image = image.into_rgb8();
    let (width, height) = (image.width() as usize, image.height() as usize);
    Image::new(image.into_raw(), height, width, 3)
}

/// A folder of images with one subfolder per class: torchvision's `ImageFolder`. An item is an image and its class index;
/// classes are sorted by name. It needs the feature `image`.
///
/// ```no_run
/// use cotangent::data::{DataLoader, DataLoaderOptions, ImageFolder, transforms::*};
/// let augment = (RandomResizedCrop::new(224)?, RandomHorizontalFlip::new(0.5)?, ToTensor);
/// let train = ImageFolder::open("flowers/train")?;
/// println!("{} images of {:?}", train.paths().len(), train.classes());
/// let options = DataLoaderOptions::new().batch_size(64).shuffle(true).num_workers(4);
/// for batch in &DataLoader::new_with(train.transform(augment), options)? {
///     let (images, classes) = batch?;
///     assert_eq!(images.shape()[1..], [3, 224, 224]);
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImageFolder {
    classes: Vec<String>,
    paths: Vec<(PathBuf, i64)>,
}

impl ImageFolder {
    /// Finds the images (`.jpg`, `.jpeg`, `.png`) in the class folders, recursively.
    ///
    /// # Errors
    /// If the folder cannot be read, has no subfolders, or a class has no images.
    #[named("ImageFolder::open")]
    pub fn open(root: impl AsRef<Path>) -> Result<ImageFolder> {
        let root = root.as_ref();
        let folders: Vec<PathBuf> = entries(root)?.into_iter().filter(|path| path.is_dir()).collect();
        if folders.is_empty() {
            bail!(Value, "ImageFolder::open", "{}: expected one folder per class, got none", root.display());
        }
        let (mut classes, mut paths) = (Vec::new(), Vec::new());
        for folder in folders {
            let before = paths.len();
            collect(&folder, classes.len() as i64, &mut paths)?;
            if paths.len() == before {
                bail!(
                    Value,
                    "ImageFolder::open",
                    "{}: no images found, looked for {}",
                    folder.display(),
                    EXTENSIONS.join(", ")
                );
            }
            classes.push(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        Ok(ImageFolder { classes, paths })
    }

    /// The names of the classes, by index.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The files with their class indices.
    pub fn paths(&self) -> &[(PathBuf, i64)] {
        &self.paths
    }

    /// Applies a transform to each image.
    pub fn transform<T: Transform<Image>>(self, transform: T) -> impl Dataset<Item = (T::Output, i64)> {
        self.map(move |(image, class)| Ok((transform.apply(image)?, class)))
    }
}

impl Dataset for ImageFolder {
    type Item = (Image, i64);

    fn len(&self) -> usize {
        self.paths.len()
    }

    fn get_item(&self, index: usize) -> Result<(Image, i64)> {
        let out = || err!(Index, "get_item", "index {index} is out of range for {} images", self.paths.len());
        let (path, class) = self.paths.get(index).ok_or_else(out)?;
        Ok((Image::open(path)?, *class))
    }
}

/// The entries of a folder, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::io("ImageFolder::open", folder, e);
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Collects the images of a class. Links to folders are not followed: they may form a cycle.
fn collect(folder: &Path, class: i64, paths: &mut Vec<(PathBuf, i64)>) -> Result<()> {
    for path in entries(folder)? {
        let is_image = || {
            let extension = path.extension().and_then(|extension| extension.to_str());
            extension.is_some_and(|extension| EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known)))
        };
        if path.is_dir() && !path.is_symlink() {
            collect(&path, class, paths)?;
        } else if is_image() {
            paths.push((path, class));
        }
    }
    Ok(())
}
