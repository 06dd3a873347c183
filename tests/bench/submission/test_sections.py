"""Sections of a README: headings of this project and of others."""

import re

import pytest

from zoo.bench.submission.sections import headings, problems

OTHERS = """\
# TSM
## 数据集下载
从官网下载
## 预处理
无
## 数据使用顺序
随机
## 初始化
常量
## 模型结构
无改变
## 优化器
SGD
## 损失函数
交叉熵
## 精度评估方法
每个 epoch
## 环境搭建
docker
## 数据准备
md5
## 运行代码的步骤
单卡, 8卡: sh run.sh
"""


def test_headings_and_their_text():
    found = headings("# A\ntext\n## B\n```\n# no heading\n```\n### C\nc\n## D\n")
    assert [(page.level, page.title) for page in found] == [(1, "A"), (2, "B"), (3, "C"), (2, "D")]
    assert found[1].body == "```\n# no heading\n```\n### C\nc" and found[3].body == ""


def test_a_page_in_chinese():
    assert problems(OTHERS, [1, 8]) == []
    assert problems(OTHERS, [1, 8, 32]) == ["the section `Training commands` has none for 32 card(s)"]
    assert problems(OTHERS.replace("## 优化器\nSGD\n", ""), []) == ["no section `Optimizer`"]


def test_an_empty_page():
    assert len(problems("", [1])) == 11


def test_a_heading_above_headings_has_their_text():
    assert problems(OTHERS.replace("## 优化器\nSGD\n", "## Optimizer\n### Numbers\n0.1\n"), []) == []
    assert problems(OTHERS.replace("## 优化器\nSGD\n", "## Optimizer\n### Numbers\n"), []) == [
        "the section `Optimizer` is empty"
    ]


def test_underlined_headings():
    found = headings("A\n===\ntext\n\nB c\n---\nmore\n\n| x |\n---\n\ntwo\nlines\n---\n\n```\n\nD\n---\n```\n")
    assert [(page.level, page.title) for page in found] == [(1, "A"), (2, "B c")]
    assert found[1].body.startswith("more\n")
    assert problems(re.sub("## (.*)", r"\n\1\n---", OTHERS), [1, 8]) == []


@pytest.mark.parametrize("body", ["-", "- TBA", "**Todo**", "xxxx", "---", "```\n```"])
def test_a_section_that_says_nothing(body):
    assert problems(OTHERS.replace("交叉熵", body), []) == ["the section `Loss` is empty"]


@pytest.mark.parametrize(
    "text", ["8 x V100 GPUs", "8 x V100", "8x V100", "8 V100 GPUs", "8 GPUs", "8-card", "8卡", "GPUx8"]
)
def test_ways_to_name_a_scale(text):
    assert problems(OTHERS.replace("8卡", text), [8]) == []


@pytest.mark.parametrize("text", ["18 GPUs", "8", "8 samples", "1 x 16 = 8 of them", "80 GPUs"])
def test_numbers_that_name_no_scale(text):
    assert problems(OTHERS.replace("8卡", text), [8]) == ["the section `Training commands` has none for 8 card(s)"]


def test_a_section_of_commands_without_one():
    assert problems(OTHERS.replace("sh run.sh", ""), [1, 8]) == ["the section `Training commands` has no command"]
