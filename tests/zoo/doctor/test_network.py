"""Names and ports of this host, right and wrong."""

import socket

from zoo.doctor import network


def test_a_name_without_an_address(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "nowhere.invalid")
    finding = network.host_name()
    assert finding.state == "warn" and finding.text.startswith("nowhere.invalid has no address (")
    assert "127.0.0.1 nowhere.invalid" in finding.remedy


def test_a_name_that_is_no_name(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "x" * 80)
    assert network.host_name().state == "warn"


def test_a_name_with_an_address(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "127.0.0.3")
    assert network.host_name()[2:] == ("ok", "127.0.0.3 is 127.0.0.3", "")


def test_ports(monkeypatch):
    monkeypatch.setattr(network, "own_address", lambda: "127.0.0.2")
    assert network.ports()[2:] == ("ok", "can listen on 127.0.0.1 and 127.0.0.2", "")
    monkeypatch.setattr(network, "own_address", lambda: None)
    assert network.ports().text == "can listen on 127.0.0.1; no other network"


def test_an_address_that_cannot_be_listened_on(monkeypatch):
    monkeypatch.setattr(network, "own_address", lambda: "203.0.113.1")  # of documentation, so not of this host
    finding = network.ports()
    assert finding.state == "warn" and finding.text.startswith("no connection to 203.0.113.1 of this host: ")
    assert "runs of one process need none" in finding.remedy
