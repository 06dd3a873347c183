"""The process by which MindSpore's workers find each other. Ends with the process that started it."""
import os
import signal
import threading
import time

import mindspore
from mindspore import communication


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the workers, which save first
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)
    threading.Thread(target=watch, daemon=True).start()
    mindspore.set_device("CPU")
    communication.init()  # returns when the last worker has left


if __name__ == "__main__":
    main()
