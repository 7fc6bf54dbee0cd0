"""OpenFHE (``openfhe``) as a backend of :mod:`circuit`.

FIXEDMANUAL rescales where the circuit says, FLEXIBLEAUTO where OpenFHE does.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time

import numpy as np
import openfhe as fhe
from circuit import Counter
from worker import pin, serve


class OpenFhe(Counter):
    """Levels as the circuit counts them: ``depth`` fresh, 0 at the end; OpenFHE counts the other way."""

    def __init__(self, request):
        super().__init__(request["ring_degree"] // 2)
        self.manual = request["mode"] == "FIXEDMANUAL"
        self.log_q = request["first_bits"] + request["scale_bits"] * request["depth"]
        self.depth, self.rotations, self.mode = request["depth"], len(request["steps"]), request["mode"]
        self.cc, self.digits = self._context(request)
        for feature in (fhe.PKESchemeFeature.PKE, fhe.PKESchemeFeature.KEYSWITCH, fhe.PKESchemeFeature.LEVELEDSHE):
            self.cc.Enable(feature)
        self.keys = self.cc.KeyGen()
        self.cc.EvalMultKeyGen(self.keys.secretKey)
        if request["steps"]:
            self.cc.EvalRotateKeyGen(self.keys.secretKey, [self.signed(s) for s in request["steps"]])
        if request.get("complex"):
            self.conjugation = self.cc.EvalAutomorphismKeyGen(self.keys.secretKey, [4 * self.slots - 1])

    def _context(self, request):
        """The fewest key-switching digits (3 is OpenFHE's default) that leave 128 bits of security."""
        for digits in range(min(3, self.depth + 1), self.depth + 2):
            try:
                return fhe.GenCryptoContext(self._parameters(request, digits)), digits
            except RuntimeError as error:
                last = error
        raise last

    def _parameters(self, request, digits):
        parameters = fhe.CCParamsCKKSRNS()
        parameters.SetNumLargeDigits(digits)
        parameters.SetMultiplicativeDepth(request["depth"])
        parameters.SetScalingModSize(request["scale_bits"])
        parameters.SetFirstModSize(request["first_bits"])
        parameters.SetScalingTechnique(getattr(fhe.ScalingTechnique, request["mode"]))
        parameters.SetKeySwitchTechnique(fhe.KeySwitchTechnique.HYBRID)
        parameters.SetRingDim(request["ring_degree"])
        parameters.SetBatchSize(self.slots)
        if request.get("complex"):
            parameters.SetCKKSDataType(fhe.CKKSDataType.COMPLEX)
        parameters.SetSecurityLevel(fhe.SecurityLevel.HEStd_128_classic)
        return parameters

    def signed(self, step):
        step %= self.slots
        return step - self.slots if step > self.slots // 2 else step

    def parameters(self):
        return {
            "ring_degree": self.cc.GetRingDimension(),
            "coefficient_bits": [self.log_q],
            "security_bits": 128,
            "mode": self.mode,
            "digits": self.digits,
        }

    def key_bytes(self):
        # digits x 2 polynomials over data and special primes (of 60 bits)
        data = self.depth + 1
        group = -(-data // self.digits)
        special = -(-(self.log_q - (data - group) * (self.log_q // data)) // 60)
        one = self.digits * 2 * (data + special) * 2 * self.slots * 8
        return {"relinearisation": one, "rotation": one * self.rotations, "public": 2 * data * 2 * self.slots * 8}

    def encode(self, values, used, products=1):
        """A plaintext for a ciphertext that has used so many levels; its scale has so many factors."""
        start = time.thread_time()
        vector = values if isinstance(values, np.ndarray) else np.full(self.slots, float(values))
        plain = self.cc.MakeCKKSPackedPlaintext(vector, products, used)
        self.encode_seconds += time.thread_time() - start
        return plain

    def used(self, a):
        """Levels that a ciphertext has used when the next product has rescaled it."""
        return a.GetLevel() + (0 if self.manual else a.GetNoiseScaleDeg() - 1)

    def encrypt(self, values):
        self.count("encrypt")
        return self.cc.Encrypt(self.keys.publicKey, self.cc.MakeCKKSPackedPlaintext(values))

    def encrypt_complex(self, values, secret=False):
        return self.cc.Encrypt(
            self.keys.secretKey if secret else self.keys.publicKey, self.cc.MakeCKKSPackedPlaintext(values)
        )

    def decrypt_complex(self, a):
        plain = self.cc.Decrypt(self.keys.secretKey, a)
        plain.SetLength(self.slots)
        return np.asarray(plain.GetCKKSPackedValue())

    def conjugate(self, a):
        return self.cc.EvalAutomorphism(a, 4 * self.slots - 1, self.conjugation)

    def decrypt(self, a):
        plain = self.cc.Decrypt(self.keys.secretKey, a)
        plain.SetLength(self.slots)
        return np.asarray(plain.GetRealPackedValue())

    def zero(self, level):
        return self.cc.Encrypt(
            self.keys.publicKey, self.cc.MakeCKKSPackedPlaintext(np.zeros(self.slots), 1, self.depth - level)
        )

    def add(self, a, b):
        self.count("add")
        return self.cc.EvalAdd(a, b)

    def add_to(self, a, b):
        self.count("add")
        self.cc.EvalAddInPlace(a, b)
        return a

    def sub(self, a, b):
        self.count("add")
        return self.cc.EvalSub(a, b)

    def negate(self, a):
        return self.cc.EvalNegate(a)

    def add_plain(self, a, values, level):
        self.count("add_plain")
        return self.cc.EvalAdd(a, self.encode(values, a.GetLevel(), a.GetNoiseScaleDeg()))

    def multiply_plain(self, a, values, level):
        self.count("multiply_plain")
        if not isinstance(values, np.ndarray):
            return self.cc.EvalMult(a, float(values))
        return self.cc.EvalMult(a, self.encode(values, self.used(a)))

    def multiply(self, a, b):
        self.count("multiply")
        self.count("relinearise")
        return self.cc.EvalMult(a, b)

    def square(self, a):
        self.count("square")
        self.count("relinearise")
        return self.cc.EvalSquare(a)

    def rescale(self, a):
        if not self.manual:
            return a
        self.count("rescale")
        return self.cc.Rescale(a)

    def lower(self, a, level, wanted):
        if level == wanted or not self.manual:
            return a
        self.count("lower")
        return self.cc.LevelReduce(a, None, level - wanted)

    def rotate(self, a, step):
        step = self.signed(step)
        if step == 0:
            return a
        self.count("rotate")
        return self.cc.EvalRotate(a, step)

    def rotate_many(self, a, steps):
        """Hoisted: cut into digits once."""
        digits = self.cc.EvalFastRotationPrecompute(a)
        return [self.cc.EvalFastRotation(a, self.signed(s), digits) for s in steps]

    def primitives(self, vector, top):
        cc, keys = self.cc, self.keys
        plain = cc.MakeCKKSPackedPlaintext(vector)
        a, b = cc.Encrypt(keys.publicKey, plain), cc.Encrypt(keys.publicKey, plain)
        product, relinearised = cc.EvalMultNoRelin(a, b), cc.EvalMult(a, b)
        rows = {
            "add": lambda: cc.EvalAdd(a, b),
            "add plain": lambda: cc.EvalAdd(a, plain),
            "multiply plain": lambda: cc.EvalMult(a, plain),
            "multiply": lambda: cc.EvalMultNoRelin(a, b),
            "multiply scalar": lambda: cc.EvalMult(a, 1.5),
            "multiply and relinearise": lambda: cc.EvalMult(a, b),
            "square and relinearise": lambda: cc.EvalSquare(a),
            "relinearise": lambda: cc.Relinearize(product),
            "rotate": lambda: cc.EvalRotate(a, 1),
            "encode": lambda: cc.MakeCKKSPackedPlaintext(vector),
            "encrypt": lambda: cc.Encrypt(keys.publicKey, plain),
            "encrypt symmetric": lambda: cc.Encrypt(keys.secretKey, plain),
            "decrypt and decode": lambda: cc.Decrypt(keys.secretKey, a),
        }
        if self.manual:
            rows["rescale"] = lambda: cc.Rescale(relinearised)
            lower = cc.MakeCKKSPackedPlaintext(vector, 1, 1)
            rows["multiply plain after a product, rescaled first"] = lambda: cc.EvalMult(
                cc.Rescale(relinearised), lower
            )
        else:
            rows["multiply plain after a product, rescaled first"] = lambda: cc.EvalMult(relinearised, plain)
        return rows


if __name__ == "__main__":
    pin()
    serve(OpenFhe, {"library": "OpenFHE", "version": getattr(fhe, "__version__", "")})
