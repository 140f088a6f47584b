"""Updates in fewer bytes: a chain of small codecs that a job names, and the file that they make.

    values of an entry -> sparsify -> quantize -> pack -> frames of a file

An update is cut into frames of at most FRAME_ELEMENTS elements, each decoded and verified by itself, so that a
reduction reads any part of an encoded update without the rest. Only parameters are changed; buffers travel as they are.

Sources: Henkel (2021), "Communication-Efficient Approaches to Federated Deep Neural Networks" (`percentile`,
`float16`); Sattler et al. (2019), "Robust and Communication-Efficient Federated Learning from Non-IID Data" (`top_k`,
`ternary`); Konecny et al. (2016), "Federated Learning: Strategies for Improving Communication Efficiency" (`random_k`);
Alistarh et al. (2017), "QSGD" (`integers`); Karimireddy et al. (2019), "Error Feedback Fixes SignSGD"
(`error_feedback`).
"""
