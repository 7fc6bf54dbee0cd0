"""OpenFHE's CKKS bootstrap on one core: ``SLOTS LEVELS``; one row of JSON."""

import json
import os
import resource
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import openfhe as fhe
from worker import pin

RUNS = 2


def main(slots, levels):
    """Bootstraps random numbers and prints what it took."""
    pin()
    parameters = fhe.CCParamsCKKSRNS()
    parameters.SetSecretKeyDist(fhe.SecretKeyDist.UNIFORM_TERNARY)
    parameters.SetSecurityLevel(fhe.SecurityLevel.HEStd_128_classic)
    parameters.SetScalingModSize(59)
    parameters.SetFirstModSize(60)
    parameters.SetScalingTechnique(fhe.ScalingTechnique.FLEXIBLEAUTO)
    budget = [3, 3]
    depth = levels + fhe.CryptoContext.GetBootstrapDepth(budget, fhe.SecretKeyDist.UNIFORM_TERNARY)
    parameters.SetMultiplicativeDepth(depth)
    cc = fhe.GenCryptoContext(parameters)
    for feature in (
        fhe.PKESchemeFeature.PKE,
        fhe.PKESchemeFeature.KEYSWITCH,
        fhe.PKESchemeFeature.LEVELEDSHE,
        fhe.PKESchemeFeature.ADVANCEDSHE,
        fhe.PKESchemeFeature.FHE,
    ):
        cc.Enable(feature)
    cc.EvalBootstrapSetup(budget, [0, 0], slots)
    keys = cc.KeyGen()
    cc.EvalMultKeyGen(keys.secretKey)
    cc.EvalBootstrapKeyGen(keys.secretKey, slots)
    values = [((k * 7919) % 2003) / 1001.5 - 1 for k in range(slots)]
    plain = cc.MakeCKKSPackedPlaintext(values, 1, depth - 1, None, slots)
    plain.SetLength(slots)
    c = cc.Encrypt(keys.publicKey, plain)
    seconds, processor, left = [], [], 0
    for _ in range(RUNS):
        start, clock = time.perf_counter(), time.process_time()
        out = cc.EvalBootstrap(c)
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - clock)
        left = depth - out.GetLevel() - (out.GetNoiseScaleDeg() - 1)
    result = cc.Decrypt(out, keys.secretKey)
    result.SetLength(slots)
    errors = [a - b for a, b in zip(result.GetRealPackedValue(), values)]
    row = {
        "case": "bootstrap",
        "peer": "OpenFHE 1.6.1 (UNIFORM_TERNARY, 59-bit scales)",
        "seconds": sorted(seconds)[len(seconds) // 2],
        "runs": seconds,
        "processor_seconds": min(processor),
        "ring_degree": cc.GetRingDimension(),
        "slots": slots,
        "levels_left": left,
        "rms_error": (sum(e * e for e in errors) / len(errors)) ** 0.5,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(row))


main(int(sys.argv[1]), int(sys.argv[2]))
