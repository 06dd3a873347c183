"""Conversion of other projects' weights to the zoo's names and format, or back to torchvision's and Paddle's."""

from zoo import program
from zoo.commands.options import add_override_argument
from zoo.data.errors import UserError
from zoo.weights import architectures, conversion, files, names
from zoo.weights.convert import TARGET_EXTENSIONS, Wanted, convert

DESCRIPTION = "Convert weights of other projects to the zoo's names and format, or back to torchvision's and Paddle's."
EPILOG = """\
Depth, classes, widths, heads and blocks are inferred from the tensors; -o states one of them, and the file must agree.
Every tensor is compared with the model: nothing is written with a missing or unexpected key or a shape mismatch.
Notes tell what a run needs, and `NOT EQUAL` what the model cannot do as its origin does; the file keeps them.

origins, the projects that a state dict can come from
  torchvision    ResNet-18 to -152
  paddle_vision  paddle.vision.models.resnet18 to resnet152
  paddleclas     PaddleClas' ResNet50, 101 and 152; not its 18 and 34 with one more shortcut, nor the _vd models
  mindspore      mindspore-ai/models' ResNet; of 1001 classes the last, which no image has, is dropped. For 50 layers
                 or more, model.padding=same and model.bn_eps=1e-4 are stored for runs
  mindcv         mindspore-lab/mindcv's ResNet; model.padding=same_pool is stored for runs
  mit            mit-han-lab/temporal-shift-module on a ResNet
  mmaction2      open-mmlab/mmaction2's TSM on a ResNet; a non-local block must be the embedded Gaussian
  paddlevideo    PaddleVideo's TSM on a ResNet. Its shift has the other direction: the channels are reordered, which
                 gives the same function with the zoo's shift (or --keep-direction, and model.shift_direction=past)
  mmseg          open-mmlab/mmsegmentation's DeepLabV3+ on a ResNet, with its auxiliary head or -o auxiliary=false
  paddleseg      PaddleSeg's DeepLabV3P on ResNet50_vd or ResNet101_vd, for model.variant=paddleseg
  insightface    insightface's IResNet: model.pt, or checkpoint_gpu_0.pt; --head joins the classes of all such files
  plsc           PLSC 1's ResNet, for model.variant=plsc: the folder of a pass. -o variant=insightface converts
                 epsilons, slopes and pixel scale to the other variant; --head joins the classes of all ranks
  plsc2          PLSC 2's IResNet: NAME.pdparams; --head joins the classes of all NAME_rank*.pdparams
  canonical      a file of the zoo, such as runs/<name>/checkpoints/best/model.safetensors

examples
  %(prog)s TSM_kinetics_RGB_resnet50_shift8_blockres_avg_segment8_e50.pth --out tsm_k400.safetensors
  %(prog)s custom.pth --out custom.safetensors -o num_classes=174
  %(prog)s ResNet50_pretrained.pdparams --out resnet50.safetensors
  %(prog)s TSM_k400_16frames.pdparams --out tsm_k400.safetensors --shift-div 16
  %(prog)s deeplabv3plus_r50-d8_512x1024_80k_cityscapes_20200606_114049-f9fb496d.pth --out deeplab.safetensors
  %(prog)s r101-d16.pth --out r101.safetensors -o output_stride=16 -o multi_grid=[1,2,4] -o rates=[6,12,18]
  %(prog)s ms1mv3_arcface_r50/backbone.pth --out r50.safetensors
  %(prog)s plsc/output/119 --out plsc50.safetensors --head
  %(prog)s runs/resnet50_imagenet/checkpoints/best/model.safetensors --out resnet50.pth --to torchvision
  %(prog)s runs/resnet50_imagenet/checkpoints/best/model.safetensors --out resnet50.pdparams --to paddle

Exit codes: 0 done, 2 nothing written."""


def main(argv: list[str]) -> int:
    """Run the command line and return the exit code."""
    arguments = parser().parse_args(argv)
    extensions = TARGET_EXTENSIONS[arguments.to]
    if not arguments.out.endswith(extensions):
        raise UserError(f"--out {arguments.out}: the name must end in {' or '.join(extensions)}")
    files.refuse_existing(arguments.out)
    flags = {field: getattr(arguments, field) for field in Wanted._fields}
    convert(arguments.source, arguments.out, Wanted(**flags), print)
    return 0


def parser() -> program.Parser:
    parser = program.parser(DESCRIPTION, EPILOG)
    add = parser.add_argument
    add(
        "source",
        metavar="IN",
        help=f"one of {', '.join(files.EXTENSIONS)}, or a folder of PLSC; no code is run from it",
    )
    add(
        "--out",
        metavar="FILE",
        required=True,
        help=".safetensors, .pth with --to torchvision, .pdparams with --to paddle; a new file",
    )
    add(
        "--model",
        choices=tuple(architectures.OPTIONS),
        help="default: the model that files of this origin usually hold",
    )
    origins = ("auto", *names.ORIGINS)
    text = f"one of {', '.join(origins)}; default auto: detected from the names"
    add("--origin", choices=origins, default="auto", metavar="PROJECT", help=text)
    add(
        "--to",
        choices=tuple(TARGET_EXTENSIONS),
        default="canonical",
        help="names and layout to write, paddle for those of paddle.vision; default canonical",
    )
    add_override_argument(
        parser,
        "option that the model must have, with the keys of a recipe's model section: depth, num_classes, ...; "
        "repeatable",
    )
    add(
        "--shift-div",
        metavar="N",
        type=int,
        help="for paddlevideo: 1/N of the channels is shifted each way, where N is the number of frames of its "
        f"training; default {conversion.DEFAULT_SHIFT_DIV}",
    )
    add(
        "--head",
        action="store_true",
        help="for face recognition: convert the classifier weight too, joined from the files of all ranks",
    )
    add("--keep-direction", action="store_true", help="for paddlevideo: keep the order of the channels")
    return parser
