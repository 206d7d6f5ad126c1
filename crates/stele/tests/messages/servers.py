"""A mail server (aiosmtpd) that demands STARTTLS and a password, and a web server (http.server), both on loopback.

Arguments: certificate, key, user, password. Standard output: the two ports, then one line of JSON for each message.
Ends when standard input does.
"""

import http.server
import json
import ssl
import sys
import threading

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

certificate, key, user, password = sys.argv[1:]
lock = threading.Lock()


def tell(**message):
    with lock:
        print(json.dumps(message), flush=True)


class Mailbox:
    async def handle_DATA(self, server, session, envelope):
        tell(by="mail", to=envelope.rcpt_tos, user=session.auth_data, text=envelope.content.decode())
        return "250 taken"


def check(server, session, envelope, mechanism, data):
    good = (data.login.decode(), data.password.decode()) == (user, password)
    return AuthResult(success=good, handled=False, auth_data=user if good else None)


class OnAnyPort(Controller):
    def _trigger_server(self):
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        tell(by="webhook", path=self.path, body=json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *ignored):
        pass


tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(certificate, key)
mail = OnAnyPort(
    Mailbox(), hostname="127.0.0.1", port=0, tls_context=tls, require_starttls=True, auth_required=True,
    authenticator=check,
)
mail.start()
hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
threading.Thread(target=hook.serve_forever, daemon=True).start()
print(mail.port, hook.server_address[1], flush=True)
sys.stdin.read()
mail.stop()
