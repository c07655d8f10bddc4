/* SPDX-License-Identifier: Apache-2.0
 * limits.h - every maximum, with its reason. Input that goes over one is refused with an error that names it. */
#ifndef PROA_BASE_LIMITS_H
#define PROA_BASE_LIMITS_H

#include <stdint.h>

/* One limit a line, so that it reads as a table. */
/* clang-format off */

#define PROA_KIB ((int64_t)1 << 10)
#define PROA_MIB ((int64_t)1 << 20)
#define PROA_GIB ((int64_t)1 << 30)

/* memory */
#define PROA_RESERVE_BYTES        (64 * PROA_MIB)  /* address space that is given up in slices when the system
                                                      refuses memory */
#define PROA_RESERVE_SLICE_BYTES  (4 * PROA_MIB)   /* larger than any bookkeeping allocation whose size no request
                                                      chooses */

/* texts of errors */
#define PROA_ERR_TEXT_MAX         (64 << 10)       /* text of an error; a Python traceback has some kB */
#define PROA_ERR_JSON_MAX         (512 << 10)      /* that text as JSON, where one byte may become six */
#define PROA_ERR_KEPT_MAX         1024             /* long error texts that have not been sent yet; older ones are
                                                      cut to one line of 479 bytes */
#define PROA_ERR_KEPT_BYTES       (16 * PROA_MIB)  /* the same in bytes */

/* log */
#define PROA_LOG_QUEUED_MAX       (1 * PROA_MIB)   /* log lines for a pipe or terminal that nobody reads; further
                                                      lines are dropped and counted */
#define PROA_LOG_FLUSH_MS         1000             /* wait for these lines when a program ends */

/* files */
#define PROA_PATH_MAX             4096             /* a path: Linux' own limit */
#define PROA_CONFIG_BYTES_MAX     (4 * PROA_MIB)   /* config.json: the largest seen (id2label of 21k classes) has 1.2
                                                      MB */
#define PROA_FP8_BLOCK_MAX        65536            /* rows or columns of a block of fp8 weights; DeepSeek V3 has 128 */
#define PROA_TOKENIZER_BYTES_MAX  (64 * PROA_MIB)  /* tokenizer.json: the largest in use (Gemma 3) has 33 MB */
#define PROA_BPE_CODES_BYTES_MAX  (8 * PROA_MIB)   /* subword-nmt's codes: 32k merges have some 400 kB */
#define PROA_SPM_BYTES_MAX        (64 * PROA_MIB)  /* SentencePiece models: mT5's has 4.3 MB, Gemma's 4.7 MB */
#define PROA_JSON_DEPTH_MAX       64               /* nesting of JSON; the deepest known tokenizer.json nests 9 */
#define PROA_JSON_NODES_MAX       (8 << 20)        /* values of a JSON file; 512k merges as pairs and 256k entries
                                                      count for 5.8 million */

#define PROA_REQUEST_NODES_MAX    (2 << 20)        /* JSON values of a request: 2 million token ids or 170,000
                                                      messages; 210 MB at most */

/* weights */
#define PROA_ST_HEADER_BYTES_MAX  (100 * PROA_MIB) /* the safetensors library's own limit (100 MB) */
#define PROA_ST_NODES_MAX         (1 << 21)        /* commas and colons of a safetensors header: 9 to 12 for each
                                                      tensor */
#define PROA_ST_INDEX_BYTES_MAX   (32 * PROA_MIB)  /* model.safetensors.index.json: DeepSeek-V3's has 9 MB */
#define PROA_HESSIAN_BYTES_MAX    (2 * PROA_GIB)   /* matrices that --calibrate holds at once; with more it reads the
                                                      text again */
#define PROA_TENSORS_MAX          (1 << 17)        /* tensors of a checkpoint; DeepSeek-V3 has 91,991 */
#define PROA_SHARDS_MAX           4096             /* files of one checkpoint */
#define PROA_TENSOR_NAME_MAX      512              /* bytes of a tensor's name */
#define PROA_GGUF_VALUES_MAX      (1 << 14)        /* entries of a GGUF file's metadata: the largest seen have 60 */
#define PROA_GGUF_KEY_BYTES_MAX   65535            /* a metadata key: the format's own limit */
#define PROA_GGUF_ALIGNMENT_MAX   (1 << 20)        /* alignment of tensors; 32 unless the file says otherwise */
#define PROA_RANK_MAX             4                /* axes of a view */
#define PROA_STORED_AXES_MAX      8                /* axes of a stored tensor; a view merges its last axes */
#define PROA_PICKLE_BYTES_MAX     (256 * PROA_MIB) /* data.pkl of a torch file: names of 100,000 tensors take 20 MB */
#define PROA_PICKLE_NODES_MAX     (1 << 22)        /* values of a pickle; OpenNMT's vocabularies have some 100,000 */
#define PROA_PICKLE_DEPTH_MAX     64               /* containers within containers; OpenNMT's nest some 15 */
#define PROA_ZIP_ENTRIES_MAX      (1 << 18)        /* files within a torch file: one for each tensor, and some more */

/* converted files */
#define PROA_OUTFILE_CHUNK_BYTES  (16 * PROA_MIB)  /* decoded and written at once */
#define PROA_OUTFILE_SYNC_BYTES   (128 * PROA_MIB) /* data between two updates of the journal: the most that is
                                                      written again after a power failure */
#define PROA_OUTFILE_LOCK_MS      3000             /* wait for another writer: a killed process ends when its last
                                                      write is done, which takes a slow disk a second or more */

/* text */
#define PROA_VOCAB_MAX            (1 << 21)        /* tokens of a vocabulary; the largest in use has 262,144 */
#define PROA_TOKEN_BYTES_MAX      (64 * 1024)      /* text of one token; Gemma has tokens of some 100 bytes */
#define PROA_PIPELINE_DEPTH_MAX   16               /* nesting of Sequence in a tokenizer.json */
#define PROA_PIPELINE_STEPS_MAX   256              /* steps of one tokenizer pipeline */
#define PROA_TEXT_BYTES_MAX       (16 * PROA_MIB)  /* one text to encode: 4 million tokens */
#define PROA_REGEX_BYTES_MAX      (64 * 1024)      /* pattern of a Split or Replace */
#define PROA_TRIE_NODES_MAX       (8 << 20)        /* prefix tree of a vocabulary: XLM-R's 250k pieces need 1 million */
#define PROA_NORMALIZED_BYTES_MAX (128 * PROA_MIB) /* a text after its normalisers; NFKD alone makes it up to 11
                                                      times as long */
#define PROA_SPM_MEMORY_MAX       (256 * PROA_MIB) /* memory while a SentencePiece model is read; Gemma's takes 40 MB */
#define PROA_REGEX_STEPS_MAX      (20 << 20)       /* backtracking steps at one position: a few more than the longest
                                                      text has bytes */
#define PROA_AFFIX_BYTES_MAX      64               /* continuing_subword_prefix and end_of_word_suffix; "</w>" has 4 */
#define PROA_TEMPLATE_PIECES_MAX  1024             /* parts of a post-processor's template; BERT's pair has 5 */

/* models: a config.json beyond these limits is an error or an attack */
#define PROA_LAYERS_MAX           1024             /* layers; Llama-3.1-405B has 126 */
#define PROA_HIDDEN_MAX           (1 << 17)        /* hidden size; Llama-3.1-405B has 16,384 */
#define PROA_FFN_MAX              (1 << 20)        /* inner size of a feed-forward layer */
#define PROA_HEADS_MAX            4096             /* attention heads of a layer */
#define PROA_PICKED_MAX           16384            /* keys that a row of sparse attention sees */
#define PROA_HEAD_DIM_MAX         1024             /* numbers of one head */
#define PROA_CONTEXT_MAX          (1 << 24)        /* tokens of one sequence */
#define PROA_BUCKETS_MAX          4096             /* buckets of relative positions (T5) */
#define PROA_RELATIVE_CONTEXT_MAX 16384            /* tokens of an input of a model with a table row for each
                                                      distance */
#define PROA_RELATIVE_HEAD_MAX    512              /* head size of such a model: kernels keep 16 results in shared
                                                      memory */
#define PROA_STATE_DIM_MAX        256              /* numbers of a key, and of a value, of a recurrent state: kernels
                                                      keep a column of it in registers */
#define PROA_CONV_WIDTH_MAX       15               /* rows in the window of a convolution */
#define PROA_LANGUAGE_MAX         32               /* bytes of the name of a language in names of tensors */
#define PROA_FFNS_MAX             4                /* dense FFNs of one layer that follow each other */
#define PROA_TOKEN_TYPES_MAX      1024             /* token types (segments) of an encoder; BERT has 2 */
#define PROA_STREAMS_MAX          8                /* streams of rows that are mixed; Gemma 3n has 4 */
#define PROA_EXPERTS_MAX          4096             /* experts of one layer */
#define PROA_LABELS_MAX           (1 << 20)        /* outputs of a classification head */
#define PROA_SENTENCE_MODULES_MAX 16               /* modules of a folder of sentence-transformers; the largest seen
                                                      have 5 */
#define PROA_DENSE_WEIGHTS_MAX    (64 << 20)       /* weights of a module Dense, which the host keeps as f32 */

/* grammars of constrained output */
#define PROA_GRAMMAR_BYTES_MAX    (1 << 20)        /* text of one grammar or schema; the largest in use have 100 kB */
#define PROA_GRAMMAR_DEPTH_MAX    128              /* nesting of groups and schemas */
#define PROA_GRAMMAR_RULES_MAX    (1 << 14)        /* rules of one grammar; a schema has one for each of its objects */
#define PROA_GRAMMAR_NODES_MAX    (1 << 20)        /* expressions of one grammar: 100 MB while it is compiled */
#define PROA_GRAMMAR_STATES_MAX   (1 << 18)        /* automaton states of one grammar: 12 MB */
#define PROA_GRAMMAR_REPEAT_MAX   (1 << 20)        /* count of a repetition; it is a counter and makes no copies */
#define PROA_GRAMMAR_LEFT_DEPTH_MAX 512            /* chain of rules that begin with each other: recursive calls of
                                                      one step */
#define PROA_GRAMMAR_TOKEN_MAX    1024             /* bytes of a token that a grammar allows; runs of spaces have 512 */
#define PROA_GRAMMAR_STACKS_MAX   4096             /* parser stacks of one configuration: ways to read the same text */
#define PROA_GRAMMAR_CONFIGS_MAX  (1 << 15)        /* cached configurations, 1 kB each; while one mask is computed, 4
                                                      times as many */
#define PROA_GRAMMAR_FRAMES_MAX   (1 << 20)        /* frames of cached stacks, 20 bytes each; while one mask is
                                                      computed, 4 times as many */
#define PROA_GRAMMAR_MASK_BYTES_MAX (64 * PROA_MIB) /* cached token masks of one grammar */
#define PROA_GRAMMAR_CACHE_MAX    64               /* compiled grammars that an engine keeps */

/* engine */
#define PROA_REAPERS              8                /* threads that close old versions of models: a backend may wait
                                                      for its processes */
#define PROA_THREADS_MAX          256              /* threads of a pool */
#define PROA_PAGE_TOKENS          64               /* tokens of a KV page; a multiple of every vector width
                                                      (docs/adr/0007-pages.md) */
#define PROA_SEQUENCES_MAX        4096             /* sequences that run at once */
#define PROA_PROMPT_SLOWDOWN_MAX  1000             /* factor by which prompts may slow down decoding: in practice no
                                                      bound */
#define PROA_WAITING_MAX          (1 << 20)        /* requests that are submitted and do not run yet */
#define PROA_CLIENT_BYTES_MAX     4096             /* bytes of a client's name */
#define PROA_BEAMS_MAX            256              /* beams of one search */
#define PROA_STEP_TOKENS_MAX      (1 << 16)        /* token budget of one step */
#define PROA_EMBED_TOKENS         (1 << 14)        /* tokens of an input that a decoder embeds, if no longer step is
                                                      chosen: one pass takes all of it */
#define PROA_SESSIONS_MAX         4096             /* conversations whose tokens an engine keeps */
#define PROA_SESSION_TOKENS_MAX   (16 << 20)       /* tokens of all these conversations: 64 MB */
#define PROA_SESSION_NAME_MAX     256              /* bytes of a session's name */
#define PROA_PREFIX_FILES_MAX     (1 << 20)        /* pages in the folder of cached prefixes: 4 TB with an 8B model */
#define PROA_PREFIX_READ_MS       2000             /* wait of a request for pages from that folder; after it the
                                                      request computes them */
#define PROA_PREFIX_FLUSH_MS      1000             /* wait of a closing engine until pages are written to it */
#define PROA_PREFIX_IMAGES_MIN    32               /* host buffers for pages that are being read from it or written
                                                      to it */
#define PROA_TOP_LOGPROBS_MAX     1024             /* most likely tokens of a position; OpenAI's API has 20 */
#define PROA_DRAFT_MAX            16               /* draft tokens of a sequence in one step */
#define PROA_TREE_MAX             64               /* draft tokens of a sequence in a tree: bits of a mask */
#define PROA_TREE_DEPTH_MAX       16               /* depth of such a tree */
#define PROA_TAPS_MAX             3                /* layers whose hidden states an EAGLE-3 head reads */
#define PROA_MEDUSA_HEADS_MAX     PROA_TREE_DEPTH_MAX /* Medusa heads: a path of a tree; published models have 3 to 5 */
#define PROA_MEDUSA_LAYERS_MAX    8                /* layers of a Medusa head; published ones have 1 */
#define PROA_EOS_MAX              16               /* end ids of one request; Llama 3 has 3 */
#define PROA_LORA_RANK_MAX        512              /* rank of a LoRA adapter; published ones have 4 to 256 */
#define PROA_LORA_ADAPTERS_MAX    4096             /* adapters of an engine; each takes host memory */
#define PROA_RANKS_MAX            64               /* ranks of one model */
#define PROA_MICRO_BATCHES_MAX    32               /* parts of a pass in a pipeline of stages */
#define PROA_STEPS_MAX            5                /* steps in flight at once */
#define PROA_HANDOFF_TOKENS_MIN   128              /* shorter prompts are not prefilled by another engine: moving
                                                      their pages costs more */
#define PROA_REPLICAS_MAX         64               /* engines of one model: an id has 6 bits for their number */
#define PROA_RANK_CALL_BYTES_MAX  ((int64_t)1 << 31) /* arguments of one call to the ranks, most of them input
                                                        embeddings */
#define PROA_RANK_FRAME_MAX       (64 * 1024)      /* a frame between processes of ranks (comm/link.h) */
#define PROA_RANK_SILENCE_MS      6000             /* heartbeats come each second: a rank that sends none for this
                                                      long is lost */
#define PROA_RANK_WAIT_MS         8000             /* wait of a GPU for another rank, unless PROA_COLLECTIVES_WAIT
                                                      says otherwise */
#define PROA_RANK_WAIT_S_MAX      86400            /* largest PROA_COLLECTIVES_WAIT: a day, for debuggers */
#define PROA_RANK_START_MS        30000            /* until a process of a rank has started and connected */
#define PROA_LORA_SLOTS_MAX       1024             /* adapters in device memory at one time */
#define PROA_LORA_NAME_MAX        256              /* bytes of an adapter's name, with its NUL */
#define PROA_LORA_PATTERNS_MAX    4096             /* entries of an adapter's rank_pattern, and of its alpha_pattern */
#define PROA_PROMPT_TABLE_BYTES_MAX (1 * PROA_GIB) /* a prompt table: 1,000 prefix tokens of Llama 3 405B */
#define PROA_PROMPT_TABLES_KEPT   (64 * PROA_MIB)  /* cached tables of requests that have ended: later requests may
                                                      bring the same */
#define PROA_LOGITS_ENTRIES_MAX       (1 << 20)    /* logits processor entries of a step that samples on the device:
                                                      8 MB */
#define PROA_WORD_IDS_MAX         (1 << 20)        /* token ids of all words in one list of a request */
#define PROA_STRINGS_MAX          1024             /* stop or banned strings of a request; OpenAI takes 4 */
#define PROA_LINE_BYTES_MAX       (1 * PROA_MIB)   /* one prompt in a file of prompts */

/* connections and protocols */
#define PROA_WAKEUPS_MAX          64               /* event loops that a thread wakes at the end of a batch
                                                      (wakeup.h) */
#define PROA_LOOPS_MAX            64               /* threads with an event loop */
#define PROA_CONNECTIONS_MAX      20000            /* open at once on one port; 5,000 idle ones cost 20 MB */
#define PROA_LEAVING_MAX          64               /* connections above the limit of a port that stay open until they
                                                      have read the refusal */
#define PROA_SPARE_DESCRIPTORS    4                /* descriptors that each loop reserves for each port: health and
                                                      metrics work when all others are used */
#define PROA_CONN_HIGH_BYTES      (1 << 20)        /* output queued for a slow reader; above it the sender waits */
#define PROA_CONN_LOW_BYTES       (256 << 10)      /* when the queue has shrunk to this, the sender goes on */
#define PROA_CONN_INPUT_BYTES_MAX (128 << 10)      /* pipelined requests that wait for the one before; above any head */
#define PROA_LINGER_MS            5000             /* wait after the server's last byte, so that a client that still
                                                      sends can read it */
#define PROA_TLS_CHECK_MS         60000            /* interval of checks whether a certificate file has changed */
#define PROA_LISTEN_BACKLOG       4096             /* connections that the kernel holds until we accept them */
#define PROA_IDLE_MS              75000            /* a kept-alive connection without a request; nginx' default */
#define PROA_HEAD_MS              10000            /* from the first byte of a request head to its end */
#define PROA_STALL_MS             30000            /* a body or answer that makes no progress */
#define PROA_HTTP_HEAD_BYTES_MAX  (64 << 10)       /* request line and headers */
#define PROA_HTTP_HEADERS_MAX     128              /* lines */
#define PROA_HTTP_BODY_MAX        (64 * PROA_MIB)  /* Triton's --http-max-input-size */
#define PROA_UNPACKED_MAX         PROA_HTTP_BODY_MAX /* a body or gRPC message after decompression, where
                                                      --http-max-input-size says nothing else: 2 MB of gzip may hold 2
                                                      GB */
#define PROA_HTTP_CHUNKS_MAX      65536            /* non-empty chunks of one body: Triton's */
#define PROA_HTTP_LINE_BYTES_MAX  (16 << 10)       /* the request line; RFC 9112 wants at least 8,000 */
#define PROA_HTTP_CHUNK_LINE_MAX  256              /* a chunk's size with its extensions, which nobody uses */
#define PROA_GRPC_MESSAGE_MAX     (INT32_MAX)      /* one message; gRPC's and Triton's own limit */
#define PROA_GRPC_STREAMS_MAX     1024             /* calls at once on a connection */
#define PROA_GRPC_METADATA_BYTES_MAX (64 << 10)    /* headers of one call, counted as HTTP/2 does: 32 more for each */
#define PROA_GRPC_TEXT_BYTES_MAX  4096             /* grpc-message before it is escaped */
#define PROA_GRPC_ESCAPED_BYTES_MAX 6144           /* grpc-message as sent, where some bytes become three: clients
                                                      take heads of 8 KiB */
#define PROA_GRPC_RESETS_MAX      1000             /* streams that a client may cancel in 10 s: Rapid Reset */
#define PROA_GRPC_CONTROLS_MAX    1000             /* SETTINGS, PRIORITY and empty DATA in 10 s */
#define PROA_GRPC_PING_MS         5000             /* pings in a shorter interval, with nothing sent between them,
                                                      are a strike */
#define PROA_GRPC_PING_STRIKES    2                /* more strikes end the connection; gRPC's own count */
#define PROA_GRPC_WINDOW          (1 << 20)        /* flow-control window of a call: bytes on the way to the server */
#define PROA_GRPC_CONNECTION_WINDOW (16 << 20)     /* flow-control window of a connection */
#define PROA_GRPC_CONTROL_BYTES_MAX (1 << 20)      /* a request that is neither inference nor a load: settings have 1
                                                      kB */
#define PROA_GRPC_STREAM_REQUESTS_MAX 1024         /* requests of one stream in flight; the client keeps the others */
#define PROA_GRPC_UNREAD_MS       300000           /* a finished answer of which the client reads nothing. HTTP has
                                                      PROA_STALL_MS, but a gRPC client may read the next answer only
                                                      when it has dealt with the one before */
#define PROA_STREAM_QUEUED_MAX    (256 * PROA_MIB) /* replies of a decoupled model that a client may leave unread, by
                                                      gRPC or generate_stream */
#define PROA_BLOCK_POOL_BYTES     ((size_t)64 << 20) /* memory of messages that each loop keeps for reuse */
#define PROA_CLOSE_MS             10000            /* time that cancelled requests get at shutdown */
#define PROA_WORK_THREADS_MAX     4                /* loads and unloads at once: Triton's --model-load-thread-count */
#define PROA_WORK_WAITING_MAX     1024             /* loads and unloads that wait for those threads: their requests
                                                      are kept */
#define PROA_WORKER_BYTES_MIN     (64 << 10)       /* larger JSON bodies are parsed by a worker thread: 64 KiB take
                                                      0.3 ms */
#define PROA_WORKER_TREE_BYTES_MIN (16 << 10)      /* the same where JSON becomes a tree: 16 KiB of empty objects
                                                      take 3 ms */
#define PROA_WORKER_BLOB_BYTES_MIN (4 << 20)       /* the same for raw tensors, where only the lengths of texts are
                                                      read */
#define PROA_WORKER_PACKED_BYTES_MIN (2 << 10)     /* the same for compressed bodies: 2 KiB may hold 2 MiB */
#define PROA_WORKER_GZIP_BYTES_MIN (16 << 10)      /* larger answers are compressed by a worker thread: 1 ms */
#define PROA_WORKER_MESSAGE_BYTES_MIN (256 << 10)  /* larger gRPC messages are parsed by a worker thread: 256 KiB of
                                                      numbers or short texts take 1 ms */
#define PROA_WORKER_THREADS_MAX   8                /* large requests read at once, at most as many as there are CPUs */
#define PROA_WORKER_WAITING_MAX   1024             /* large requests that wait for those threads, with their bodies */
#define PROA_TRIM_MS              300              /* idle time without large requests before freed memory goes back
                                                      to the system */
#define PROA_INFLIGHT_BYTES_MAX   (4 * PROA_GIB)   /* request bodies of all connections together */
#define PROA_INFLIGHT_COUNTED_MIN (64 << 10)       /* smaller bodies do not count towards it */

/* serving */
#define PROA_PBTXT_BYTES_MAX      (4 * PROA_MIB)   /* config.pbtxt */
#define PROA_PBTXT_DEPTH_MAX      32               /* messages within messages; Triton's own nest 6 */
#define PROA_MAP_ENTRIES_MAX      8192             /* entries of one map in a configuration, which is searched
                                                      linearly for each key */
#define PROA_SERVE_RANK_MAX       16               /* dimensions of a tensor on the wire */
#define PROA_INFER_JSON_DEPTH_MAX 100              /* nesting of an inference request as JSON; Triton's own limit */
#define PROA_TENSORS_PER_REQUEST_MAX 1024          /* inputs, or requested outputs, of one request */
#define PROA_PARAMS_PER_REQUEST_MAX  1024          /* parameters of one request */
#define PROA_GPUS_MAX             64               /* GPUs of one machine; DGX systems have up to 16 */
#define PROA_TRACE_SPANS_MAX      4096             /* requests of one trace; further calls of models are not traced */
#define PROA_TRACE_ACTIVITIES_MAX 1024             /* activities that a backend reports for one request */
#define PROA_TRACE_FINISHES_MAX   16               /* sequences of a request whose ends a span shows */
#define PROA_OTLP_TIMEOUT_MS      10000            /* sending a batch of spans, with retries; OpenTelemetry's default */
#define PROA_OTLP_CLOSE_MS        3000             /* wait of a closing server for its collector */
#define PROA_OTLP_QUEUE_MAX       (1 << 20)        /* spans that may wait, at most: some 1 kB each */
#define PROA_OTLP_DELAY_MS_MAX    (3600 * 1000)
#define PROA_OTLP_URL_BYTES_MAX   4096
#define PROA_OTLP_HEADERS_MAX     64               /* entries of OTEL_EXPORTER_OTLP_HEADERS, and resource attributes */
#define PROA_OTLP_ANSWER_BYTES_MAX (64 << 10)      /* what is read of a collector's answer */
#define PROA_TRACE_ERROR_BYTES_MAX 1024            /* text of an error in a span */
#define PROA_TRACESTATE_BYTES_MAX 512              /* W3C Trace Context, 3.3.1.5: so much should be passed on */
#define PROA_TRACE_TENSOR_BYTES_MAX (1 * PROA_MIB) /* values of a tensor as text; a larger tensor is traced without
                                                      its values */
#define PROA_TRACE_QUEUED_MAX     4096             /* traces that wait to be written; further ones are dropped and
                                                      counted */
#define PROA_TRACE_QUEUED_BYTES   (256 * PROA_MIB) /* tensors of these traces */
#define PROA_TRACE_FILE_BYTES     (64 * PROA_MIB)  /* size of one numbered trace file; further traces for it are
                                                      dropped */
#define PROA_MODELS_MAX           4096             /* models of all repositories */
#define PROA_INSTANCES_MAX        1024             /* instances of one model */
#define PROA_ONNX_THREADS_MAX     1024             /* threads of a pool of ONNX Runtime */
#define PROA_ONNX_PROVIDER_OPTIONS_MAX 64          /* options of one execution provider; TensorRT's has 40 */
#define PROA_ONNX_DEPTH_MAX       100              /* nesting of messages in an .onnx file; protobuf's own limit */
#define PROA_ONNX_LOCATION_MAX    4096             /* bytes of a path of external data: Linux' own */
#define PROA_BACKEND_CONFIG_MAX   (64 * PROA_MIB)  /* a configuration as JSON, for a backend that is a library */
#define PROA_ENSEMBLE_STEPS_MAX   256              /* steps of one ensemble; TensorRT-LLM's have 3 */
#define PROA_BATCH_REQUESTS_MAX   4096             /* requests of one execution */
#define PROA_QUEUE_MAX            (1 << 20)        /* waiting requests of one model, where no policy says less */
#define PROA_METRICS_BYTES_MAX    (64 * PROA_MIB)  /* a page of metrics: 4,096 models take 30 MB */
#define PROA_METRIC_LABELS_BYTES_MAX (64 << 10)    /* names and tags of one model */
#define PROA_REPLY_STATS_MAX      1024             /* replies of a request with statistics of their own; later ones
                                                      count with the last */
#define PROA_SHM_REGIONS_MAX      4096             /* registered shared memory regions */
#define PROA_WARMUP_RUNS_MAX      10000            /* runs of one warm-up sample, for which a model waits before it
                                                      serves; examples have up to 100 */
#define PROA_LABELS_BYTES_MAX     (16 * PROA_MIB)  /* one label file */
#define PROA_CLASSES_MAX          1000000          /* elements of an output that is to be classified; Triton's own
                                                      limit */
#define PROA_ANSWER_BYTES_MAX     (2 * PROA_GIB)   /* one answer as JSON or compressed: 64 MiB of tensors with 20
                                                      digits each */
#define PROA_COMPRESS_LEVEL       1                /* deflate level of HTTP answers: the loop waits for it, and a
                                                      higher level takes 3 times as long for 5 % */
#define PROA_CLASSES_BYTES_MAX    (256 * PROA_MIB) /* the strings of one classified output: a million classes with
                                                      labels */
#define PROA_READ_AT_ONCE_BYTES   (16 << 10)       /* text that is tokenised on the caller's thread: 16 KB take 1 to
                                                      2 ms */
#define PROA_FT_ROWS_MAX          4096             /* prompts of one request; FasterTransformer's configurations say
                                                      1,024 */
#define PROA_REPLY_ARRAY_BYTES_MAX (1 * PROA_GIB)  /* one tensor of an engine's reply: 2,000 rows of 128k logits */
#define PROA_CHAT_TREE_BYTES_MAX  (96 << 10)       /* a chat that waits as a JSON tree, up to 250 times as large as
                                                      its text; a larger one waits as text */
#define PROA_OPENAI_PROMPTS_MAX   2048             /* prompts of one request; OpenAI's limit for embeddings */
#define PROA_OPENAI_CHOICES_MAX   4096             /* prompts times n: PROA_SEQUENCES_MAX */
#define PROA_OPENAI_LOGPROBS_MAX  20               /* alternatives of a token; OpenAI's limit */
#define PROA_OPENAI_ANSWER_MAX    (256 * PROA_MIB) /* one answer: 2,048 vectors of 4,096 numbers have 100 MB */
#define PROA_RESPONSES_MAX        4096             /* stored responses of /v1/responses */
#define PROA_RESPONSES_BYTES_MAX  (64 * PROA_MIB)  /* stored responses with their conversations, and the longest
                                                      conversation */
#define PROA_RESPONSES_KEEP_MS    (30 * 86400000LL) /* until an unused response is deleted; OpenAI's 30 days */
#define PROA_OPENAI_QUEUED_MAX    (64 * PROA_MIB)  /* events of a stream that its client does not read; above it the
                                                      stream ends with an error */
#define PROA_FIGURES_BYTES_MAX    (16 * PROA_MIB)  /* /figures: 4,096 models with 1 kB each and room */
#define PROA_RECENT_REQUESTS_MAX  512              /* requests that /figures/requests shows: 150 kB kept, 250 kB as
                                                      JSON */
#define PROA_RECENT_NAME_MAX      96               /* bytes of a model's name or a request's id there; longer ones
                                                      are cut */
#define PROA_CALL_NAME_MAX        256              /* bytes of a function's name in a model's text; OpenAI's has 64 */
#define PROA_HARMONY_HEADER_MAX   1024             /* bytes of a message header of gpt-oss; the longest in use have
                                                      100 */
#define PROA_TEMPLATE_BYTES_MAX   (1 * PROA_MIB)   /* a chat template; the longest in use have 20 kB */
#define PROA_TEMPLATE_STEPS_MAX   (10 << 20)       /* steps of one rendering: a statement, an expression, or 4 to 16
                                                      bytes of text */
#define PROA_TEMPLATE_CPU_MS      2000             /* CPU time of one rendering, for steps that cost more than they
                                                      should */
#define PROA_TEMPLATE_DEPTH_MAX   64               /* nesting of blocks and expressions; nested calls of macros and
                                                      loops */
#define PROA_TEMPLATE_NEST_MAX    1000             /* nesting of all these together at run time: half a MiB of stack */
#define PROA_TEMPLATE_PARAMS_MAX  64               /* parameters of one macro; the largest in use has 5 */
#define PROA_TEMPLATE_MEMORY_MAX  (256 * PROA_MIB) /* values and texts of one rendering */
#define PROA_GPU_KEPT_BYTES_MAX   (1 * PROA_GIB)   /* GPU memory that is kept for the next tensors */
#define PROA_TRANSFORM_STEPS_MAX  64               /* steps of one transform: one 64-bit mask says which a request
                                                      needs */
#define PROA_TRANSFORM_ARGS_MAX   64               /* arguments of one step */
#define PROA_TRANSFORM_OPTIONS_MAX 16              /* options of one step; the operation with the most has 8 */
#define PROA_TRANSFORM_LIST_MAX   1024             /* elements of one option */
#define PROA_TRANSFORM_BYTES_MAX  (1 * PROA_GIB)   /* one value: 256 million numbers */
#define PROA_TRANSFORM_BRIEF_ROWS 64              /* texts whose features are computed on a loop's thread: 5 us each */
#define PROA_NGRAM_WORDS_MAX      8                /* words of one n-gram; those longer than 3 hardly ever occur
                                                      twice */
#define PROA_NGRAM_LISTS_MAX      64               /* files of `lists`; each n-gram is looked up in each of them */
#define PROA_NGRAM_FILE_BYTES_MAX (256 * PROA_MIB) /* a vocabulary or a lexicon: ten million lines */
#define PROA_LEXICON_COLUMNS_MAX  64               /* weights of each n-gram */
#define PROA_TEXT_COLUMNS_MAX     (1 << 20)        /* features of one text: 4 MB a row */

#define PROA_WATCH_NS             100000           /* an engine on a device polls for its next request this long
                                                      before it sleeps: waking up takes 10 to 20 us */

/* recorded passes (CUDA graphs) of a device (kernels/cuda/runtime/device.cu) */
#define PROA_PASSES_MAX           96               /* recorded passes: one for each length of short texts and each
                                                      decode batch; about 100 kB each on the GPU and on the host */

/* what was timed on a device (kernels/tune.h) */
#define PROA_TUNE_ENTRIES_MAX     4096             /* 30 buckets of rows, 10 products of a model: a dozen models */
#define PROA_TUNE_BYTES_MAX       (2 * PROA_MIB)   /* the file: 260 bytes an entry */

/* forests: tree ensembles from files */
#define PROA_FOREST_BYTES_MAX     (16 * PROA_GIB)  /* a model file; 2,000 trees of depth 16 have 5 GB as JSON */
#define PROA_FOREST_TREES_MAX     (1 << 20)        /* 10,000 rounds of 100 classes */
#define PROA_FOREST_TREE_NODES_MAX (1 << 24)       /* nodes of one tree; scikit-learn's unpruned trees have one for
                                                      each two rows */
#define PROA_FOREST_NODES_MAX     ((int64_t)1 << 28) /* nodes of all trees: 2,000 complete ones of depth 16 */
#define PROA_FOREST_DEPTH_MAX     4096             /* edges from root to leaf; leaf-wise growth makes some 100 */
#define PROA_FOREST_FEATURES_MAX  (1 << 24)        /* features; hashed text has 2^20 */
#define PROA_FOREST_OUTPUTS_MAX   (1 << 16)        /* targets times classes */
#define PROA_FOREST_CATEGORIES_MAX (1 << 24)       /* categories of a feature; XGBoost's limit: beyond 2^24 floats do
                                                      not have all integers */
#define PROA_FOREST_WORDS_MAX     ((int64_t)1 << 26) /* words of 32 categories in all sets: 256 MiB; XGBoost's sets
                                                        may be short */
#define PROA_FOREST_VECTORS_MAX   ((int64_t)1 << 30) /* values in all vector leaves: 8 GiB */
#define PROA_FOREST_TERMS_MAX     ((int64_t)1 << 30) /* terms of all linear leaves: 12 GiB */
#define PROA_ENV_ENTRIES_MAX      (1 << 20)        /* entries of a packed Python environment; a conda one with torch
                                                      has 60,000 */
#define PROA_ENV_BYTES_MAX        (64 * PROA_GIB)  /* files of a packed environment; torch with CUDA has 7 GB */
#define PROA_ENV_SCRIPTS_MS       60000            /* all scripts of etc/conda/activate.d; each sets some variables */
#define PROA_ENV_TEXT_MAX         (1 * PROA_MIB)   /* all its variables; Linux' own limit is 2 MiB with the arguments */
#define PROA_ENV_UNPACK_MS        300000           /* conda-unpack: it rewrites some thousand files */
/* Python models */
#define PROA_PROCESS_ARENA_BYTES   (8 * PROA_GIB)  /* address space of each direction of a process; memory is taken
                                                      as it is used */
#define PROA_PROCESS_KEEP_BYTES    (32 * PROA_MIB) /* free memory of an arena that is not returned: batches of 10 MB
                                                      reuse warm pages */
#define PROA_CHANNEL_HEAD_MAX      (16 * PROA_MIB) /* JSON of one message; a configuration has at most
                                                      PROA_CONFIG_BYTES_MAX */
#define PROA_PYTHON_SOURCES_MAX   (4 * PROA_MIB)   /* the embedded Python files: 60 kB */
#define PROA_PYTHON_START_MS      30000            /* until the interpreter must run, and for finalize; Triton's
                                                      stub-timeout-seconds */
#define PROA_TRITON_BUCKETS_MAX   1024             /* buckets of a histogram that a Triton backend makes */
#define PROA_PROCESS_LIMIT_MS_MAX ((int64_t)7 * 86400 * 1000) /* largest time limit of a process that can be set: a
                                                                 week */
#define PROA_PROCESS_MEMORY_MB_MAX ((int64_t)1 << 24) /* largest memory limit of a process that can be set: 16 TiB */
#define PROA_PROCESS_LEASES_MAX    4096            /* outputs on GPUs that a process has memory for and has not sent
                                                      yet */
#define PROA_PROCESS_OPENED_KEPT   64              /* unused GPU memory handles that a process keeps open */
#define PROA_PROCESS_PREFETCHED_MAX 4              /* responses for which a process holds GPU memory in advance */
#define PROA_PROCESS_PREFETCH_BYTES ((size_t)16 << 20) /* GPU memory of such a response; larger responses wait for
                                                          theirs */
#define PROA_PROCESS_METRICS_MAX   4096             /* metrics that the models of one version create */
/* the hub: models by name */
#define PROA_HUB_NAME_MAX         96               /* bytes of "ORG/NAME": the hub's own */
#define PROA_HUB_REVISION_MAX     256              /* bytes of a branch or tag; git's file names have 255 */
#define PROA_HUB_FILES_MAX        100000           /* files of a repository; the hub advises fewer */
#define PROA_HUB_LIST_BYTES_MAX   (64 * PROA_MIB)  /* the list of its files as JSON: 300 bytes each, and the model's
                                                      card */
#define PROA_HUB_FILE_BYTES_MAX   ((int64_t)1 << 42) /* one file: the hub's own is 500 GB */
#define PROA_HUB_CONNECTIONS_MAX  32               /* largest number of connections that can be set */
#define PROA_HUB_CONNECTIONS      8                /* connections of a download; more gained nothing at 1 GB/s */
#define PROA_HUB_PIECE_BYTES      (8 * PROA_MIB)   /* range of one request */
#define PROA_HUB_WINDOW_PIECES    2                /* ranges in memory for each connection */
#define PROA_HUB_REDIRECTS_MAX    8                /* redirects of one request */
#define PROA_HUB_ATTEMPTS_MAX     6                /* attempts of a request that makes no progress: 15 s with their
                                                      pauses */
#define PROA_HUB_RETRY_MS         500              /* first pause between attempts, doubled each time */
#define PROA_HUB_WAIT_SECS_MAX    300              /* longest Retry-After that is waited for; the hub counts requests
                                                      per 5 minutes */
#define PROA_HUB_ERROR_BYTES_MAX  4096             /* what is read of an error's body, for its text */
#define PROA_HUB_URL_MAX          (16 << 10)       /* bytes of an address; signed addresses of CDNs have 2 kB */
#define PROA_HUB_TOKEN_MAX        4096             /* bytes of an access token */
/* object stores: repositories in a cloud */
#define PROA_CLOUD_OBJECTS_MAX    200000           /* objects below a repository's path: 400 bytes each while it is
                                                      listed */
#define PROA_CLOUD_PAGE_OBJECTS_MAX 10000          /* objects of one page of a listing: S3 and Google send 1000,
                                                      Azure 5000 */
#define PROA_CLOUD_PAGE_BYTES_MAX (32 * PROA_MIB)  /* one page of a listing: keys have at most 1 KiB, three times as
                                                      much when escaped */
#define PROA_CLOUD_PAGES_MAX      (PROA_CLOUD_OBJECTS_MAX / 100) /* pages of a listing: a server may send short
                                                                    pages, but not for ever */
#define PROA_CLOUD_TOKEN_MAX      8192             /* bytes of a session's or a bearer's token: servers take headers of
                                                      8 to 16 KiB */
#define PROA_CLOUD_IDENTITY_BYTES_MAX 20000        /* bytes of a web identity's token: as many as Amazon's STS takes */
#define PROA_CLOUD_GRANT_BYTES_MAX (64 * PROA_KIB) /* an answer with credentials: two tokens and names */
#define PROA_CLOUD_ROLE_MAX       2049             /* bytes of a role's ARN and its NUL: Amazon's own */
#define PROA_CLOUD_METADATA_MS    1000             /* a request to a service of the machine: without one a start takes
                                                      that much longer */
#define PROA_CLOUD_GRANT_ATTEMPTS_MAX 3            /* of a request for credentials: with the pauses 2 s */
#define PROA_CLOUD_RENEW_SECS     300              /* credentials are fetched again that long before they end; ... */
#define PROA_CLOUD_RENEW_PAUSE_SECS 60             /* ... after a failure not before such a pause, ... */
#define PROA_CLOUD_RENEW_AGAIN_SECS 5              /* ... which is shorter where nothing else is left */
#define PROA_CLOUD_CACHE_BYTES    (100 * PROA_GIB) /* --cloud-cache-size: files of repositories that are kept */
/* clang-format on */

#endif
