"""The tables of an nsys SQLite export, schema 3.20.3: the ones that a capture of CUDA and NVTX fills.

A column is `name`, `name!` (never NULL), `name:TEXT` or both (`name!:TEXT`); INTEGER unless it says otherwise.
"""

from __future__ import annotations

VERSION = "3.20.3"
PRODUCT_VERSION = "2025.3.2.0"

_GPU_WORK = "start! end! deviceId! contextId! greenContextId streamId! correlationId globalPid"

TABLES = {
    # Every repeated text; other tables hold its id.
    "StringIds": "id!PK value!:TEXT",
    # What was captured and how; names may repeat.
    "META_DATA_CAPTURE": "name!:TEXT value:TEXT",
    # Which exporter wrote the file, from what.
    "META_DATA_EXPORT": "name!:TEXT value:TEXT",
    "ANALYSIS_FILE": "id!PK filename:TEXT contentId globalPid!",
    # Length of the session; its times are relative to the profiler, not to UTC.
    "ANALYSIS_DETAILS": "globalVid! duration! startTime! stopTime!",
    "DIAGNOSTIC_EVENT": "timestamp! timestampType! source! severity! text!:TEXT globalPid",
    # All processes of the machine, ranks among them.
    "PROCESSES": "globalPid pid name:TEXT",
    "ThreadNames": "nameId! priority globalTid",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName!:TEXT name!:TEXT nameEnum! value!:TEXT",
    # UTC of t=0.
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime:TEXT localTime:TEXT",
    "TARGET_INFO_GPU": (
        "vmId! id! name:TEXT busLocation:TEXT isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate smCount"
        " pwGpuId uuid:TEXT luid chipName:TEXT cuDevice ctxswDevPath:TEXT ctrlDevPath:TEXT revision nodeMask"
        " constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm"
        " maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock"
        " maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ"
        " computeMajor computeMinor smMajor smMinor"
    ),
    # Which GPU a process means by a CUDA ordinal.
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId! pid!",
    "TARGET_INFO_CUDA_CONTEXT_INFO": (
        "nullStreamId! hwId! vmId! processId! deviceId! contextId! parentContextId isGreenContext"
    ),
    "TARGET_INFO_CUDA_STREAM": "streamId! hwId! vmId! processId! contextId! priority! flag!",
    # Ranges, marks, and the rows that name domains and threads. The payload is declared TEXT and holds a blob.
    "NVTX_EVENTS": (
        "start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId domainId uint64Value"
        " int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId jsonText:TEXT binaryData:TEXT"
    ),
    "NVTX_PAYLOAD_SCHEMAS": "domainId schemaId name:TEXT type flags numEntries payloadSize alignTo",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": (
        "domainId! schemaId! idx! flags type name:TEXT description:TEXT arrayOrUnionDetail offset"
    ),
    "NVTX_PAYLOAD_ENUMS": "domainId schemaId name:TEXT numEntries size",
    "NVTX_PAYLOAD_ENUM_ENTRIES": "domainId! schemaId! idx! name:TEXT value isFlag",
    # Host calls of the runtime and of the driver alike.
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_GPU_WORK} demangledName! shortName! mangledName launchType cacheConfig registersPerThread!"
        " gridX! gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! dynamicSharedMemory!"
        " localMemoryPerThread! localMemoryTotal! gridId! sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_GPU_WORK} bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId"
        " dstContextId migrationCause graphNodeId virtualAddress copyCount"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_GPU_WORK} value! bytes! graphNodeId memKind",
    # Host time of calls that wait; `eventSyncId` leads to the record waited for.
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_GPU_WORK} deprecatedSyncType syncType! eventId! eventSyncId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "deviceId! contextId! greenContextId streamId! correlationId globalPid eventId! eventSyncId"
    ),
}

_ENUM_COLUMNS = "id!PK name:TEXT label:TEXT"


def _enum(prefix: str, first: int, *pairs: str) -> list[tuple[int, str, str]]:
    """Rows of an enum table from `SYMBOL=Label` texts, numbered upwards."""
    rows = []
    for i, pair in enumerate(pairs, first):
        symbol, _, label = pair.partition("=")
        rows.append((i, prefix + symbol, label or symbol))
    return rows


# Of the long enums, the values that such a capture can contain.
ENUMS = {
    "ENUM_NSYS_EVENT_TYPE": [
        *_enum("", 33, "NvtxCategory", "NvtxMark"),
        *_enum("", 39, "NvtxThread"),
        *_enum("", 45, "Cuda", "CudaDevice"),
        *_enum("", 59, "NvtxPushPopRange", "NvtxStartEndRange"),
        *_enum("", 75, "NvtxDomainCreate", "NvtxDomainDestroy"),
    ],
    "ENUM_NSYS_EVENT_CLASS": _enum("TRACE_PROCESS_EVENT_", 0, "CUDA_RUNTIME=CUDA runtime", "CUDA_DRIVER=CUDA driver"),
    "ENUM_CUDA_MEMCPY_OPER": _enum(
        "CUDA_MEMCPY_KIND_",
        0,
        *("UNKNOWN=Unknown", "HTOD=Host-to-Device", "DTOH=Device-to-Host", "HTOA=Host-to-Array"),
        *("ATOH=Array-to-Host", "ATOA=Array-to-Array", "ATOD=Array-to-Device", "DTOA=Device-to-Array"),
        *("DTOD=Device-to-Device", "HTOH=Host-to-Host", "PTOP=Peer-to-Peer", "UVM_HTOD=Unified Host-to-Device"),
        *("UVM_DTOH=Unified Device-to-Host", "UVM_DTOD=Unified Device-to-Device"),
    ),
    "ENUM_CUDA_MEM_KIND": _enum(
        "CUDA_MEMOPR_MEMORY_KIND_",
        0,
        *("PAGEABLE=Pageable", "PINNED=Pinned", "DEVICE=Device", "ARRAY=Array", "MANAGED=Managed"),
        *("DEVICE_STATIC=Device Static", "MANAGED_STATIC=Managed Static", "UNKNOWN=Unknown"),
    ),
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE": _enum(
        "CUDA_KERNEL_LAUNCH_TYPE_",
        0,
        *("UNKNOWN=Unknown", "REGULAR=Regular"),
        *("COOPERATIVE_SINGLE_DEVICE=Coop Single Device", "COOPERATIVE_MULTI_DEVICE=Coop Multi Device"),
    ),
    "ENUM_CUDA_SHARED_MEM_LIMIT_CONFIG": _enum("CUDA_SHARED_MEM_LIMIT_", 0, "DEFAULT=Default", "OPTIN=Opt in"),
    "ENUM_CUDA_FUNC_CACHE_CONFIG": _enum(
        "CU_FUNC_CACHE_PREFER_", 0, "NONE=None", "SHARED=Shared", "L1=L1", "EQUAL=Equal"
    ),
    "ENUM_CUPTI_STREAM_TYPE": _enum(
        "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_",
        0,
        *("UNKNOWN=Unknown stream type", "DEFAULT=Default stream"),
        *("NON_BLOCKING=Non-blocking stream", "NULL=Null stream"),
    ),
    "ENUM_CUPTI_SYNC_TYPE": _enum(
        "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_",
        0,
        *("UNKNOWN=Unknown", "EVENT_SYNCHRONIZE=Event sync", "STREAM_WAIT_EVENT=Stream wait sync"),
        *("STREAM_SYNCHRONIZE=Stream sync", "CONTEXT_SYNCHRONIZE=Context sync"),
    ),
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": [
        (0, "UnknownLevel", "Unknown"),
        *_enum("", 1, "Info", "Warning", "Error", "Verbose"),
    ],
    "ENUM_DIAGNOSTIC_SOURCE_TYPE": [
        (0, "UnknownSource", "Unknown source"),
        *_enum("", 1, "Injection", "Daemon", "Analysis"),
    ],
    "ENUM_DIAGNOSTIC_TIMESTAMP_SOURCE": _enum(
        "", 0, "UnknownTimestamp=Unknown timestamp", "TargetTimestamp=Target timestamp", "HostTimestamp=Host timestamp"
    ),
}


def create(table: str) -> str:
    """The CREATE TABLE statement of a table or enum."""
    columns = TABLES.get(table, _ENUM_COLUMNS)
    return f"CREATE TABLE {table} ({', '.join(map(_column, columns.split()))})"


def _column(spec: str) -> str:
    head, _, kind = spec.partition(":")
    key = head.endswith("PK")
    name = head.removesuffix("PK").removesuffix("!")
    null = " NOT NULL" if "!" in head else ""
    return f"{name} {kind or 'INTEGER'}{null}{' PRIMARY KEY' if key else ''}"
