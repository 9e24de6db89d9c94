//! Images and their transforms, against torchvision's.

use super::assert_fails_with;
use cotangent::data::transforms::*;
use cotangent::data::{DataLoader, DataLoaderOptions, Dataset, Image, Interpolation, from_fn};
use cotangent::{Generator, Result, with_generator};
use serde_json::Value;

fn fixtures() -> Value {
    serde_json::from_str(include_str!("../../fixtures/data/transforms.json")).unwrap_or_else(|e| panic!("{e}"))
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value} is a number")) as usize
}

fn image(value: &Value) -> Result<Image> {
    let hex = value["pixels"].as_str().unwrap_or_default().as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or_else(|| panic!("hexadecimal")) as u8;
    let pixels = hex.chunks(2).map(|pair| 16 * digit(pair[0]) + digit(pair[1])).collect();
    Image::new(pixels, number(&value["height"]), number(&value["width"]), number(&value["channels"]))
}

fn interpolation(value: &Value) -> Interpolation {
    match value.as_str() {
        Some("nearest") => Interpolation::Nearest,
        Some("bilinear") => Interpolation::Bilinear,
        Some("bicubic") => Interpolation::Bicubic,
        Some("lanczos") => Interpolation::Lanczos,
        _ => panic!("{value}"),
    }
}

fn apply(x: &Image, op: &str, args: &[Value]) -> Result<Image> {
    let n = |at: usize| number(&args[at]);
    let f = |at: usize| args[at].as_f64().unwrap_or_else(|| panic!("{args:?}"));
    match op {
        "resize" => x.resize(n(0), n(1), interpolation(&args[2])),
        "resize_shorter" => Resize::new(n(0))?.apply(x.clone()),
        "center_crop" => CenterCrop::new((n(0), n(1)))?.apply(x.clone()),
        "resized_crop" => x.crop(n(0), n(1), n(2), n(3))?.resize(n(4), n(5), Interpolation::Bilinear),
        "crop" => x.crop(n(0), n(1), n(2), n(3)),
        "hflip" => Ok(x.horizontal_flip()),
        "vflip" => Ok(x.vertical_flip()),
        "pad" => x.pad([n(0), n(1), n(2), n(3)], n(4) as u8),
        "brightness" => x.adjust_brightness(f(0)),
        "contrast" => x.adjust_contrast(f(0)),
        "saturation" => x.adjust_saturation(f(0)),
        "hue" => x.adjust_hue(f(0)),
        "grayscale" => x.to_grayscale(n(0)),
        "rotate" => x.rotate(f(0), interpolation(&args[1]), n(2) as u8),
        _ => panic!("{op}"),
    }
}

#[test]
fn transforms_are_torchvisions() -> Result<()> {
    let fixtures = fixtures();
    let mut wrong = Vec::new();
    let cases = fixtures["cases"].as_array().unwrap_or_else(|| panic!("cases"));
    assert!(cases.len() > 100);
    for case in cases {
        let x = image(&fixtures["images"][case["image"].as_str().unwrap_or_default()])?;
        let (op, args) =
            (case["op"].as_str().unwrap_or_default(), case["args"].as_array().cloned().unwrap_or_default());
        let (got, expected) = (apply(&x, op, &args)?, image(case)?);
        if got != expected {
            let size = |x: &Image| (x.height(), x.width(), x.channels());
            let off = got.pixels().iter().zip(expected.pixels()).map(|(a, b)| a.abs_diff(*b));
            let (most, count) = (off.clone().max(), off.filter(|&x| x > 0).count());
            wrong.push(format!(
                "{} {op} {args:?}: {:?} {:?}, {count} off by up to {most:?}",
                case["image"],
                size(&got),
                size(&expected)
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    Ok(())
}

#[test]
fn tensors_are_normalized_as_torchvision_does() -> Result<()> {
    let fixtures = fixtures();
    let case = &fixtures["normalized"];
    let list = |name: &str| case[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect::<Vec<f64>>();
    let transform = (ToTensor, Normalize::new(list("mean"), list("std"))?);
    let x = transform.apply(image(&fixtures["images"]["rgb"])?)?;
    assert_eq!(x.shape(), [3, 17, 23]);
    let got: Vec<f32> = x.to_vec::<f32>()?.into_iter().step_by(7).collect();
    let expected: Vec<f32> = list("values").into_iter().map(|x| x as f32).collect();
    assert_eq!(got.len(), expected.len());
    assert!(got.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-6), "{got:?} {expected:?}");
    Ok(())
}

fn chain() -> Result<impl Transform<Image, Output = cotangent::Tensor>> {
    Ok((
        RandomResizedCrop::new(8)?,
        RandomHorizontalFlip::new(0.5)?,
        RandomVerticalFlip::new(0.5)?,
        RandomRotation::new(20.0)?.interpolation(Interpolation::Bilinear),
        ColorJitter::new(0.4, 0.4, 0.4, 0.1)?,
        RandomGrayscale::new(0.2)?,
        RandomCrop::new(8)?.padding(1),
        ToTensor,
    ))
}

#[test]
fn random_transforms_follow_seed_epoch_and_index_whatever_the_worker() -> Result<()> {
    let epochs = |workers: usize, batch_size: usize| -> Result<Vec<Vec<f32>>> {
        let (image, chain) = (image(&fixtures()["images"]["rgb"])?, chain()?);
        let dataset = from_fn(6, move |_| Ok(image.clone())).map(move |image| chain.apply(image));
        let options = DataLoaderOptions::new().batch_size(batch_size).num_workers(workers).seed(11);
        let loader = DataLoader::new_with(dataset, options)?;
        let epoch = || Ok(loader.iter().map(|x| x?.to_vec::<f32>()).collect::<Result<Vec<_>>>()?.concat());
        (0..2).map(|_| epoch()).collect()
    };
    let expected = epochs(0, 1)?;
    assert_ne!(expected[0], expected[1]);
    let items: Vec<&[f32]> = expected[0].chunks(3 * 64).collect();
    assert!((1..6).all(|at| items[at] != items[0]), "items are changed differently");
    assert_eq!(epochs(2, 2)?, expected);
    assert_eq!(epochs(3, 6)?, expected);
    Ok(())
}

#[test]
fn random_crops_reach_all_places_and_stay_inside() -> Result<()> {
    let image = Image::new((0..100).collect(), 10, 10, 1)?;
    let mut seen = [false; 100];
    with_generator(&mut Generator::seed(1), || {
        for _ in 0..400 {
            let part = RandomCrop::new(4)?.apply(image.clone())?;
            seen[usize::from(part.pixels()[0])] = true;
            RandomResizedCrop::new((5, 3))?.scale(0.01, 1.0)?.ratio(0.1, 10.0)?.apply(image.clone())?;
        }
        Ok::<(), cotangent::Error>(())
    })?;
    assert_eq!(seen.iter().filter(|&&seen| seen).count(), 49);
    // An image of extreme proportions.
    let line = Image::new(vec![1; 1000], 1, 1000, 1)?;
    assert_eq!(RandomResizedCrop::new(4)?.apply(line)?.pixels(), [1; 16]);
    Ok(())
}

#[test]
fn bad_images_and_settings_are_refused() -> Result<()> {
    assert_fails_with(Image::new(vec![0; 5], 1, 2, 3), &["Image::new", "5 bytes", "1 × 2 × 3"]);
    assert_fails_with(Image::new(vec![], 0, 2, 3), &["Image::new"]);
    assert_fails_with(Image::new(vec![0; 4], 1, 2, 2), &["must be 1 or 3, got 2"]);
    assert_fails_with(Image::new(vec![0; 4], usize::MAX, 2, 1), &["Image::new"]);
    let image = Image::new(vec![0; 12], 2, 2, 3)?;
    assert_fails_with(image.crop(1, 1, 2, 1), &["crop", "2 by 1", "2 by 2"]);
    assert_fails_with(image.crop(usize::MAX, 0, 2, 1), &["crop"]);
    assert_fails_with(image.resize(0, 3, Interpolation::Bilinear), &["resize", "(0, 3)"]);
    assert_fails_with(image.resize(1 << 20, 1 << 20, Interpolation::Bilinear), &["resize", "1048576"]);
    assert_fails_with(image.pad([usize::MAX, 0, 0, 1], 0), &["pad"]);
    assert_fails_with(image.rotate(f64::NAN, Interpolation::Nearest, 0), &["rotate", "NaN"]);
    assert_fails_with(image.rotate(1.0, Interpolation::Lanczos, 0), &["rotate", "Lanczos"]);
    assert_fails_with(image.adjust_brightness(-1.0), &["adjust_brightness", "-1"]);
    assert_fails_with(image.adjust_hue(0.6), &["adjust_hue", "0.6"]);
    assert_fails_with(image.to_grayscale(2), &["to_grayscale"]);
    let thin = Image::new(vec![0; 60_000], 1, 60_000, 1)?;
    assert_fails_with(Resize::new(5000)?.apply(thin), &["resize"]);
    assert_fails_with(Resize::new(0), &["Resize::new"]);
    assert_fails_with(RandomHorizontalFlip::new(1.5), &["RandomHorizontalFlip::new", "1.5"]);
    assert_fails_with(RandomResizedCrop::new(2)?.scale(0.0, 1.0), &["RandomResizedCrop::scale"]);
    assert_fails_with(RandomRotation::new(-1.0), &["RandomRotation::new"]);
    assert_fails_with(ColorJitter::new(0.1, 0.1, 0.1, 0.6), &["ColorJitter::new", "0.6"]);
    assert_fails_with(ColorJitter::new(-0.1, 0.1, 0.1, 0.1), &["brightness"]);
    assert_fails_with(Normalize::new([0.5], [0.0]), &["Normalize::new"]);
    assert_fails_with(Normalize::new([0.5; 3], [1.0; 2]), &["Normalize::new"]);
    assert_fails_with((ToTensor, Normalize::new([0.5], [1.0])?).apply(image.clone()), &["Normalize", "[3, 2, 2]"]);
    assert_fails_with(RandomCrop::new(3)?.apply(image), &["RandomCrop", "3 by 3", "2 by 2"]);
    Ok(())
}

#[cfg(feature = "image")]
mod files {
    use super::super::sources::Folder;
    use super::*;
    use cotangent::data::ImageFolder;

    const PNG: &[u8] = include_bytes!("../../fixtures/data/small.png");
    const JPEG: &[u8] = include_bytes!("../../fixtures/data/small.jpg");

    #[test]
    fn files_are_decoded_as_pil_does() -> Result<()> {
        let decoded = &fixtures()["decoded"];
        assert_eq!(Image::decode(PNG)?, image(&decoded["small.png"])?);
        let (got, expected) = (Image::decode(JPEG)?, image(&decoded["small.jpg"])?);
        assert_eq!((got.height(), got.width()), (expected.height(), expected.width()));
        // Decoders round differently, and upsample subsampled colours differently.
        let off = got.pixels().iter().zip(expected.pixels()).map(|(a, b)| f64::from(a.abs_diff(*b)));
        let (most, mean) = (off.clone().fold(0.0, f64::max), off.sum::<f64>() / got.pixels().len() as f64);
        assert!(most <= 12.0 && mean < 1.0, "off by {most} at most, {mean} on average");
        Ok(())
    }

    #[test]
    fn a_folder_has_classes_and_broken_files_are_named() -> Result<()> {
        let folder = Folder::new("images");
        folder.file("b/1.png", PNG);
        folder.file("a/deeper/2.JPG", JPEG);
        folder.file("a/1.jpeg", JPEG);
        folder.file("a/notes.txt", "no image");
        let images = ImageFolder::open(folder.path())?;
        assert_eq!((images.classes(), images.len()), (&["a", "b"].map(String::from)[..], 3));
        let classes: Vec<i64> = images.paths().iter().map(|(_, class)| *class).collect();
        assert_eq!(classes, [0, 0, 1]);
        let loader = DataLoader::new_with(
            images.transform((Resize::exact(8, 8)?, ToTensor)),
            DataLoaderOptions::new().batch_size(3).num_workers(2),
        )?;
        let Some((x, y)) = loader.iter().next().transpose()? else { unreachable!() };
        assert_eq!((x.shape(), y.to_vec::<i64>()?), (&[3, 3, 8, 8][..], vec![0, 0, 1]));

        folder.file("a/0.png", &PNG[..PNG.len() / 2]);
        let images = ImageFolder::open(folder.path())?;
        assert_fails_with(images.get_item(0), &["Image::open", "0.png"]);
        folder.file("c/notes.txt", "no image");
        assert_fails_with(ImageFolder::open(folder.path()), &["ImageFolder::open", "no images"]);
        assert_fails_with(ImageFolder::open(folder.path().join("b")), &["one folder per class"]);
        assert_fails_with(ImageFolder::open("/no/such/folder"), &["/no/such/folder"]);
        assert_fails_with(Image::decode(b"text"), &["Image::decode"]);
        Ok(())
    }

    #[test]
    fn an_image_that_claims_to_be_huge_is_refused() {
        let mut png = PNG.to_vec();
        // Width and height of the header, which then has a wrong sum of its bytes as well.
        png[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
        assert_fails_with(Image::decode(&png), &["Image::decode"]);
        let mut jpeg = JPEG.to_vec();
        let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap_or_else(|| panic!("a frame"));
        jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
        assert_fails_with(Image::decode(&jpeg), &["Image::decode"]);
    }
}
