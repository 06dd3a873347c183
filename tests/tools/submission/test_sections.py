"""Sections of a README: headings of this project and of others."""

from tools.submission.sections import headings, problems

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
单卡, 8卡
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
