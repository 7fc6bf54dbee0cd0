"""Microsoft SEAL (``seal-python``) as a backend of :mod:`circuit`."""

import time

import numpy as np
import seal
from circuit import Counter
from worker import pin, serve


class Seal(Counter):
    """Scales are exact.

    Level l has scale S_l with S_top = 2^scale_bits and S_(l-1) = S_l^2 / q_l, so that squares and layers meet.
    """

    def __init__(self, request):
        super().__init__(request["ring_degree"] // 2)
        depth, bits = request["depth"], request["scale_bits"]
        self.bits = [request["first_bits"], *[bits] * depth, request["special_bits"]]
        parameters = seal.EncryptionParameters(seal.scheme_type.ckks)
        parameters.set_poly_modulus_degree(request["ring_degree"])
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(request["ring_degree"], self.bits))
        self.context = seal.SEALContext(parameters, True, seal.sec_level_type.tc128)
        if not self.context.parameters_set():
            raise ValueError(
                f"SEAL refuses {self.bits} at N = {request['ring_degree']} for 128 bits: "
                f"{self.context.parameter_error_message()}"
            )
        keys = seal.KeyGenerator(self.context)
        self.secret, public = keys.secret_key(), keys.create_public_key()
        self.relin, self.galois = keys.create_relin_keys(), seal.GaloisKeys()
        if request["steps"]:
            keys.create_galois_keys([self.signed(s) for s in request["steps"]], self.galois)
        if request.get("complex"):
            keys.create_galois_keys([0], self.galois)  # SEAL's name of conjugation
        self.encryptor, self.decryptor = seal.Encryptor(self.context, public), seal.Decryptor(self.context, self.secret)
        self.symmetric = seal.Encryptor(self.context, public, self.secret)
        self.ev, self.encoder = seal.Evaluator(self.context), seal.CKKSEncoder(self.context)
        self.top, self.galois_count = depth, len(request["steps"])
        self.ids, self.primes, self.scales = self._chain(depth, 2.0**bits)
        self.all_primes = [m.value() for m in self.context.key_context_data().parms().coeff_modulus()]

    def _chain(self, depth, scale):
        ids, primes, scales = {}, {}, {depth: scale}
        data = self.context.first_context_data()
        for level in range(depth, -1, -1):
            ids[level] = data.parms_id()
            primes[level] = data.parms().coeff_modulus()[-1].value()
            if level:
                scales[level - 1] = scales[level] ** 2 / primes[level]
                data = data.next_context_data()
        return ids, primes, scales

    def signed(self, step):
        step %= self.slots
        return step - self.slots if step > self.slots // 2 else step

    def parameters(self):
        return {
            "ring_degree": 2 * self.slots,
            "coefficient_bits": self.bits,
            "primes": self.all_primes,
            "security_bits": 128,
        }

    def key_bytes(self):
        keys = len(self.bits) - 1
        one = keys * 2 * (keys + 1) * 2 * self.slots * 8
        return {
            "relinearisation": one,
            "rotation": one * self.galois_count,
            "public": 2 * (keys + 1) * 2 * self.slots * 8,
        }

    def encode(self, values, level, scale):
        start = time.thread_time()
        plain = self.encoder.encode(values if isinstance(values, np.ndarray) else float(values), scale)
        if level != self.top:
            self.ev.mod_switch_to_inplace(plain, self.ids[level])
        self.encode_seconds += time.thread_time() - start
        return plain

    def encrypt(self, values):
        self.count("encrypt")
        return self.encryptor.encrypt(self.encoder.encode(values, self.scales[self.top]))

    def encrypt_complex(self, values, secret=False):
        plain = self.encoder.encode_complex(values, self.scales[self.top])
        return self.symmetric.encrypt_symmetric(plain) if secret else self.encryptor.encrypt(plain)

    def decrypt_complex(self, a):
        return np.asarray(self.encoder.decode_complex(self.decryptor.decrypt(a)))

    def conjugate(self, a):
        return self.ev.complex_conjugate(a, self.galois)

    def decrypt(self, a):
        return np.asarray(self.encoder.decode(self.decryptor.decrypt(a)))

    def zero(self, level):
        fresh = self.encryptor.encrypt_zero(self.ids[level])
        fresh.scale(self.scales[level])
        return fresh

    def add(self, a, b):
        self.count("add")
        return self.ev.add(self.near(a, b), b)

    def add_to(self, a, b):
        self.count("add")
        self.ev.add_inplace(a, b)
        return a

    def sub(self, a, b):
        self.count("add")
        return self.ev.sub(self.near(a, b), b)

    def near(self, a, b):
        """SEAL wants equal scales to the last bit: binary64 rounding may differ there, nothing else."""
        if a.scale() != b.scale():
            if abs(a.scale() / b.scale() - 1) > 1e-12:
                raise ValueError(f"scales {a.scale()} and {b.scale()} differ")
            a.scale(b.scale())
        return a

    def negate(self, a):
        return self.ev.negate(a)

    def add_plain(self, a, values, level):
        self.count("add_plain")
        return self.ev.add_plain(a, self.encode(values, level, a.scale()))

    def multiply_plain(self, a, values, level):
        self.count("multiply_plain")
        scale = self.scales[level - 1] * self.primes[level] / a.scale()
        return self.ev.multiply_plain(a, self.encode(values, level, scale))

    def multiply(self, a, b):
        self.count("multiply")
        self.count("relinearise")
        return self.ev.relinearize(self.ev.multiply(a, b), self.relin)

    def square(self, a):
        self.count("square")
        self.count("relinearise")
        return self.ev.relinearize(self.ev.square(a), self.relin)

    def rescale(self, a):
        self.count("rescale")
        done = self.ev.rescale_to_next(a)
        level = done.coeff_modulus_size() - 1
        if abs(done.scale() / self.scales[level] - 1) > 1e-9:
            raise ValueError(f"scale {done.scale()} at level {level}, planned {self.scales[level]}")
        done.scale(self.scales[level])
        return done

    def lower(self, a, level, wanted):
        if level == wanted:
            return a
        self.count("lower")
        if level > wanted + 1:
            a = self.ev.mod_switch_to(a, self.ids[wanted + 1])
        return self.rescale(self.multiply_plain(a, 1.0, wanted + 1))

    def rotate(self, a, step):
        step = self.signed(step)
        if step == 0:
            return a
        self.count("rotate")
        return self.ev.rotate_vector(a, step, self.galois)

    def rotate_many(self, a, steps):
        """SEAL does not hoist."""
        return [self.rotate(a, s) for s in steps]

    def primitives(self, vector, top):
        scale, ev = self.scales[top], self.ev
        plain = self.encoder.encode(vector, scale)
        a, b = self.encryptor.encrypt(plain), self.encryptor.encrypt(plain)
        product = ev.square(a)
        relinearised = ev.relinearize(product, self.relin)
        decrypted = self.decryptor.decrypt(a)
        lower = self.encode(vector, top - 1, scale)
        return {
            "add": lambda: ev.add(a, b),
            "add plain": lambda: ev.add_plain(a, plain),
            "multiply plain": lambda: ev.multiply_plain(a, plain),
            "multiply": lambda: ev.multiply(a, b),
            "square": lambda: ev.square(a),
            "relinearise": lambda: ev.relinearize(product, self.relin),
            "square and relinearise": lambda: ev.relinearize(ev.square(a), self.relin),
            "rescale": lambda: ev.rescale_to_next(relinearised),
            "rotate": lambda: ev.rotate_vector(a, 1, self.galois),
            "encode": lambda: self.encoder.encode(vector, scale),
            "multiply scalar": lambda: ev.multiply_plain(a, self.encoder.encode(1.5, scale)),
            "multiply and relinearise": lambda: ev.relinearize(ev.multiply(a, b), self.relin),
            "multiply plain after a product, rescaled first": lambda: ev.multiply_plain(
                ev.rescale_to_next(relinearised), lower
            ),
            "encrypt": lambda: self.encryptor.encrypt(plain),
            "encrypt symmetric": lambda: self.symmetric.encrypt_symmetric(plain),
            "decrypt": lambda: self.decryptor.decrypt(a),
            "decode": lambda: self.encoder.decode(decrypted),
            "decrypt and decode": lambda: self.encoder.decode(self.decryptor.decrypt(a)),
        }


if __name__ == "__main__":
    pin()
    serve(Seal, {"library": "Microsoft SEAL", "version": getattr(seal, "__version__", "4.4.0")})
