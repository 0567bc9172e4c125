//! The argument struct of each function this crate offers or calls: slot, size, fields.
//!
//! The size is what the interface calls the struct size: the end of the last field, which is less
//! than Rust's size where padding follows. What a function fills in stands behind `=>`. Handles are
//! [`Raw`]: on the way in they are this crate's, on the way down the wrapped plug-in's.

use super::Raw;

/// An argument struct that belongs to one slot of the table.
///
/// # Safety
/// The type is `repr(C)`, starts with `struct_size` and `extension_start`, and all zero bytes are a
/// valid value of it.
pub unsafe trait Arguments: Copy {
    /// Index into the table.
    const SLOT: usize;
    /// Struct size by the interface's own count.
    const SIZE: usize;

    /// Zeroed, with the struct size filled in.
    fn new() -> Self;

    /// A copy of a caller's struct that says [`Self::SIZE`]: a caller of a newer version has more
    /// fields behind, which the copy has not.
    #[must_use]
    fn copied(&self) -> Self;

    /// Zero in every field the function is to fill: a caller does not clear them, and a plug-in that
    /// is older, or lies, may leave them.
    fn clear_results(&mut self);
}

macro_rules! arguments {
    ($( $name:ident, $slot:literal, $size:literal {
        $($field:ident : $type:ty),* $(=> $($result:ident : $of:ty),*)? $(; $($last:ident : $kind:ty),*)?
    } )*) => { $(
        #[doc = concat!("Arguments of the function at slot ", $slot, ".")]
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(clippy::struct_field_names, reason = "the names are the interface's")]
        pub struct $name {
            pub struct_size: usize,
            pub extension_start: Raw,
            $(pub $field: $type,)*
            $($(pub $result: $of,)*)?
            $($(pub $last: $kind,)*)?
        }

        const _: () = assert!(size_of::<$name>() == ($size as usize).next_multiple_of(8));

        // SAFETY: `repr(C)` with the two leading fields; integers, flags and pointers may be zero.
        unsafe impl Arguments for $name {
            const SLOT: usize = $slot;
            const SIZE: usize = $size;

            fn new() -> Self {
                // SAFETY: all zero bytes are valid, as the trait demands.
                let mut arguments: Self = unsafe { std::mem::zeroed() };
                arguments.struct_size = Self::SIZE;
                arguments
            }

            fn copied(&self) -> Self {
                Self { struct_size: Self::SIZE, ..*self }
            }

            fn clear_results(&mut self) {
                // SAFETY: all zero bytes are valid, as the trait demands.
                $($(self.$result = unsafe { std::mem::zeroed() };)*)?
            }
        }
    )* };
}

arguments! {
    ErrorDestroy, 0, 24 { error: Raw }
    ErrorMessage, 1, 40 { error: Raw => message: Raw, message_size: usize }
    ErrorGetCode, 2, 28 { error: Raw => code: u32 }
    PluginInitialize, 3, 16 {}
    PluginAttributes, 4, 32 { => attributes: Raw, num_attributes: usize }
    EventDestroy, 5, 24 { event: Raw }
    EventIsReady, 6, 25 { event: Raw => is_ready: u8 }
    EventError, 7, 24 { event: Raw }
    EventAwait, 8, 24 { event: Raw }
    EventOnReady, 9, 40 { event: Raw, callback: Raw, user_arg: Raw }
    ClientCreate, 10, 88 {
        create_options: Raw, num_options: usize, kv_get_callback: Raw, kv_get_user_arg: Raw,
        kv_put_callback: Raw, kv_put_user_arg: Raw => client: Raw; kv_try_get_callback: Raw,
        kv_try_get_user_arg: Raw
    }
    ClientDestroy, 11, 24 { client: Raw }
    ClientPlatformName, 12, 40 { client: Raw => platform_name: Raw, platform_name_size: usize }
    ClientProcessIndex, 13, 28 { client: Raw => process_index: i32 }
    ClientPlatformVersion, 14, 40 {
        client: Raw => platform_version: Raw, platform_version_size: usize
    }
    ClientDevices, 15, 40 { client: Raw => devices: Raw, num_devices: usize }
    ClientAddressableDevices, 16, 40 {
        client: Raw => addressable_devices: Raw, num_addressable_devices: usize
    }
    ClientLookupDevice, 17, 40 { client: Raw, id: i32 => device: Raw }
    ClientLookupAddressableDevice, 18, 40 {
        client: Raw, local_hardware_id: i32 => addressable_device: Raw
    }
    ClientAddressableMemories, 19, 40 {
        client: Raw => addressable_memories: Raw, num_addressable_memories: usize
    }
    ClientCompile, 20, 56 {
        client: Raw, program: Raw, compile_options: Raw, compile_options_size: usize => executable:
        Raw
    }
    ClientDefaultDeviceAssignment, 21, 48 {
        client: Raw, num_replicas: i32, num_partitions: i32, default_assignment_size: usize,
        default_assignment: Raw
    }
    ClientBufferFromHostBuffer, 22, 120 {
        client: Raw, data: Raw, kind: u32, dims: Raw, num_dims: usize, byte_strides: Raw,
        num_byte_strides: usize, host_buffer_semantics: u32, device: Raw, memory: Raw,
        device_layout: Raw => done_with_host_buffer: Raw, buffer: Raw
    }
    DeviceDescriptionId, 23, 28 { device_description: Raw => id: i32 }
    DeviceDescriptionProcessIndex, 24, 28 { device_description: Raw => process_index: i32 }
    DeviceDescriptionAttributes, 25, 40 {
        device_description: Raw => num_attributes: usize, attributes: Raw
    }
    DeviceDescriptionKind, 26, 40 {
        device_description: Raw => device_kind: Raw, device_kind_size: usize
    }
    DeviceDescriptionDebugString, 27, 40 {
        device_description: Raw => debug_string: Raw, debug_string_size: usize
    }
    DeviceDescriptionToString, 28, 40 {
        device_description: Raw => to_string: Raw, to_string_size: usize
    }
    DeviceGetDescription, 29, 32 { device: Raw => device_description: Raw }
    DeviceIsAddressable, 30, 25 { device: Raw => is_addressable: u8 }
    DeviceLocalHardwareId, 31, 28 { device: Raw => local_hardware_id: i32 }
    DeviceAddressableMemories, 32, 40 { device: Raw => memories: Raw, num_memories: usize }
    DeviceDefaultMemory, 33, 32 { device: Raw => memory: Raw }
    DeviceMemoryStats, 34, 201 {
        device: Raw => bytes_in_use: i64, peak_bytes_in_use: i64, peak_bytes_in_use_is_set: u8,
        num_allocs: i64, num_allocs_is_set: u8, largest_alloc_size: i64, largest_alloc_size_is_set:
        u8, bytes_limit: i64, bytes_limit_is_set: u8, bytes_reserved: i64, bytes_reserved_is_set:
        u8, peak_bytes_reserved: i64, peak_bytes_reserved_is_set: u8, bytes_reservable_limit: i64,
        bytes_reservable_limit_is_set: u8, largest_free_block_bytes: i64,
        largest_free_block_bytes_is_set: u8, pool_bytes: i64, pool_bytes_is_set: u8,
        peak_pool_bytes: i64, peak_pool_bytes_is_set: u8, peak_allocated_bytes: i64,
        peak_allocated_bytes_is_set: u8
    }
    MemoryId, 35, 28 { memory: Raw => id: i32 }
    MemoryKind, 36, 40 { memory: Raw => kind: Raw, kind_size: usize }
    MemoryDebugString, 37, 40 { memory: Raw => debug_string: Raw, debug_string_size: usize }
    MemoryToString, 38, 40 { memory: Raw => to_string: Raw, to_string_size: usize }
    MemoryAddressableByDevices, 39, 40 { memory: Raw => devices: Raw, num_devices: usize }
    ExecutableDestroy, 40, 24 { executable: Raw }
    ExecutableName, 41, 40 { executable: Raw => executable_name: Raw, executable_name_size: usize }
    ExecutableNumReplicas, 42, 32 { executable: Raw => num_replicas: usize }
    ExecutableNumPartitions, 43, 32 { executable: Raw => num_partitions: usize }
    ExecutableNumOutputs, 44, 32 { executable: Raw => num_outputs: usize }
    ExecutableSizeOfGeneratedCodeInBytes, 45, 32 { executable: Raw => size_in_bytes: i64 }
    ExecutableGetCostAnalysis, 46, 40 { executable: Raw => num_properties: usize, properties: Raw }
    ExecutableOutputMemoryKinds, 47, 48 {
        executable: Raw => num_outputs: usize, memory_kinds: Raw, memory_kind_sizes: Raw
    }
    ExecutableOptimizedProgram, 48, 32 { executable: Raw, program: Raw }
    ExecutableSerialize, 49, 56 {
        executable: Raw => serialized_bytes: Raw, serialized_bytes_size: usize,
        serialized_executable: Raw, serialized_executable_deleter: Raw
    }
    LoadedExecutableDestroy, 50, 24 { executable: Raw }
    LoadedExecutableGetExecutable, 51, 32 { loaded_executable: Raw => executable: Raw }
    LoadedExecutableAddressableDevices, 52, 40 {
        executable: Raw => addressable_devices: Raw, num_addressable_devices: usize
    }
    LoadedExecutableDelete, 53, 24 { executable: Raw }
    LoadedExecutableIsDeleted, 54, 25 { executable: Raw => is_deleted: u8 }
    LoadedExecutableExecute, 55, 80 {
        executable: Raw, options: Raw, argument_lists: Raw, num_devices: usize, num_args: usize,
        output_lists: Raw, device_complete_events: Raw, execute_device: Raw
    }
    ExecutableDeserializeAndLoad, 56, 72 {
        client: Raw, serialized_executable: Raw, serialized_executable_size: usize =>
        loaded_executable: Raw; overridden_serialized_compile_options: Raw,
        overridden_serialized_compile_options_size: usize, load_options: Raw
    }
    LoadedExecutableFingerprint, 57, 40 {
        executable: Raw => executable_fingerprint: Raw, executable_fingerprint_size: usize
    }
    BufferDestroy, 58, 24 { buffer: Raw }
    BufferElementType, 59, 28 { buffer: Raw => kind: u32 }
    BufferDimensions, 60, 40 { buffer: Raw => dims: Raw, num_dims: usize }
    BufferUnpaddedDimensions, 61, 40 { buffer: Raw => unpadded_dims: Raw, num_dims: usize }
    BufferDynamicDimensionIndices, 62, 40 {
        buffer: Raw => dynamic_dim_indices: Raw, num_dynamic_dims: usize
    }
    BufferGetMemoryLayout, 63, 104 { buffer: Raw => layout: [u64; 10] }
    BufferOnDeviceSizeInBytes, 64, 32 { buffer: Raw => on_device_size_in_bytes: usize }
    BufferDevice, 65, 32 { buffer: Raw => device: Raw }
    BufferMemory, 66, 32 { buffer: Raw => memory: Raw }
    BufferDelete, 67, 24 { buffer: Raw }
    BufferIsDeleted, 68, 25 { buffer: Raw => is_deleted: u8 }
    BufferCopyToDevice, 69, 40 { buffer: Raw, dst_device: Raw => dst_buffer: Raw }
    BufferToHostBuffer, 70, 56 {
        src: Raw, host_layout: Raw, dst: Raw, dst_size: usize => event: Raw
    }
    BufferIsOnCpu, 71, 25 { buffer: Raw => is_on_cpu: u8 }
    BufferReadyEvent, 72, 32 { buffer: Raw => event: Raw }
    BufferUnsafePointer, 73, 32 { buffer: Raw => buffer_pointer: usize }
    BufferIncreaseExternalReferenceCount, 74, 24 { buffer: Raw }
    BufferDecreaseExternalReferenceCount, 75, 24 { buffer: Raw }
    BufferOpaqueDeviceMemoryDataPointer, 76, 32 { buffer: Raw => device_memory_ptr: Raw }
    CopyToDeviceStreamDestroy, 77, 24 { stream: Raw }
    CopyToDeviceStreamAddChunk, 78, 40 { stream: Raw, chunk: Raw => transfer_complete: Raw }
    CopyToDeviceStreamTotalBytes, 79, 32 { stream: Raw => total_bytes: i64 }
    CopyToDeviceStreamGranuleSize, 80, 32 { stream: Raw => granule_size_in_bytes: i64 }
    CopyToDeviceStreamCurrentBytes, 81, 32 { stream: Raw => current_bytes: i64 }
    TopologyDescriptionCreate, 82, 56 {
        topology_name: Raw, topology_name_size: usize, create_options: Raw, num_options: usize =>
        topology: Raw
    }
    TopologyDescriptionDestroy, 83, 24 { topology: Raw }
    TopologyDescriptionPlatformName, 84, 40 {
        topology: Raw => platform_name: Raw, platform_name_size: usize
    }
    TopologyDescriptionPlatformVersion, 85, 40 {
        topology: Raw => platform_version: Raw, platform_version_size: usize
    }
    TopologyDescriptionGetDeviceDescriptions, 86, 40 {
        topology: Raw => descriptions: Raw, num_descriptions: usize
    }
    TopologyDescriptionSerialize, 87, 56 {
        topology: Raw => serialized_bytes: Raw, serialized_bytes_size: usize, serialized_topology:
        Raw, serialized_topology_deleter: Raw
    }
    TopologyDescriptionAttributes, 88, 40 {
        topology: Raw => attributes: Raw, num_attributes: usize
    }
    Compile, 89, 64 {
        topology: Raw, program: Raw, compile_options: Raw, compile_options_size: usize, client: Raw
        => executable: Raw
    }
    ExecutableOutputElementTypes, 90, 40 {
        executable: Raw => output_types: Raw, num_output_types: usize
    }
    ExecutableOutputDimensions, 91, 48 {
        executable: Raw => num_outputs: usize, dims: Raw, dim_sizes: Raw
    }
    BufferCopyToMemory, 92, 40 { buffer: Raw, dst_memory: Raw => dst_buffer: Raw }
    ClientCreateViewOfDeviceBuffer, 93, 112 {
        client: Raw, device_buffer_ptr: Raw, dims: Raw, num_dims: usize, element_type: u32, layout:
        Raw, device: Raw, on_delete_callback: Raw, on_delete_callback_arg: Raw, stream: i64 =>
        buffer: Raw; memory: Raw
    }
    ExecutableFingerprint, 94, 40 {
        executable: Raw => executable_fingerprint: Raw, executable_fingerprint_size: usize
    }
    ClientTopologyDescription, 95, 32 { client: Raw => topology: Raw }
    ExecutableGetCompiledMemoryStats, 96, 144 {
        executable: Raw => generated_code_size_in_bytes: i64, argument_size_in_bytes: i64,
        output_size_in_bytes: i64, alias_size_in_bytes: i64, temp_size_in_bytes: i64,
        host_generated_code_size_in_bytes: i64, host_argument_size_in_bytes: i64,
        host_output_size_in_bytes: i64, host_alias_size_in_bytes: i64, host_temp_size_in_bytes:
        i64, peak_memory_in_bytes: i64, total_size_in_bytes: i64, total_allocation_bytes: i64,
        indefinite_allocations: i64, peak_unpadded_heap_bytes: i64
    }
    MemoryKindId, 97, 28 { memory: Raw => kind_id: i32 }
    ExecuteContextCreate, 98, 24 { => context: Raw }
    ExecuteContextDestroy, 99, 24 { context: Raw }
    BufferCopyRawToHost, 100, 56 {
        buffer: Raw, dst: Raw, offset: i64, transfer_size: i64 => event: Raw
    }
    TransferManagerDestroy, 101, 24 { transfer_manager: Raw }
    TransferManagerTransferData, 102, 72 {
        transfer_manager: Raw, buffer_index: i32, data: Raw, offset: i64, transfer_size: i64,
        is_last_transfer: u8 => done_with_h2d_transfer: Raw
    }
    ClientCreateBuffersForAsyncHostToDevice, 103, 72 {
        client: Raw, shape_specs: Raw, num_shape_specs: usize, device_layouts: Raw,
        num_device_layouts: usize, memory: Raw => transfer_manager: Raw
    }
    TransferManagerRetrieveBuffer, 104, 40 {
        transfer_manager: Raw, buffer_index: i32 => buffer_out: Raw
    }
    TransferManagerDevice, 105, 32 { transfer_manager: Raw => device_out: Raw }
    TransferManagerBufferCount, 106, 32 { transfer_manager: Raw => buffer_count: usize }
    TransferManagerBufferSize, 107, 40 {
        transfer_manager: Raw, buffer_index: i32 => buffer_size: usize
    }
    TransferManagerSetBufferError, 108, 48 {
        transfer_manager: Raw, buffer_index: i32, error_code: u32, error_message: Raw,
        error_message_size: usize
    }
    TransferManagerAddMetadata, 109, 40 {
        transfer_manager: Raw, transfer_metadata: Raw, num_metadata: usize
    }
    ClientDmaMap, 110, 40 { client: Raw, data: Raw, size: usize }
    ClientDmaUnmap, 111, 32 { client: Raw, data: Raw }
    ClientCreateUninitializedBuffer, 112, 80 {
        client: Raw, shape_dims: Raw, shape_num_dims: usize, shape_element_type: u32, shape_layout:
        Raw, device: Raw, memory: Raw => buffer: Raw
    }
    ClientUpdateGlobalProcessInfo, 113, 40 {
        client: Raw, process_infos: Raw, num_process_infos: usize
    }
    TopologyDescriptionDeserialize, 114, 40 {
        serialized_topology: Raw, serialized_topology_size: usize => topology: Raw
    }
    ClientCreateAliasBuffer, 115, 80 {
        client: Raw, memory: Raw, shape_dims: Raw, shape_num_dims: usize, shape_element_type: u32,
        shape_layout: Raw => alias_buffer: Raw, fulfill_alias_buffer_cb: Raw
    }
    ClientFulfillAliasBuffer, 116, 64 {
        client: Raw, buffer: Raw, status_code: u32, error_message: Raw, error_message_size: usize,
        fulfill_alias_buffer_cb: Raw
    }
    LoadedExecutableGetDeviceAssignment, 117, 56 {
        executable: Raw => serialized_bytes: Raw, serialized_bytes_size: usize,
        serialized_device_assignment: Raw, serialized_device_assignment_deleter: Raw
    }
    ClientCreateErrorBuffer, 118, 112 {
        client: Raw, error_code: u32, error_message: Raw, error_message_size: usize, shape_dims:
        Raw, shape_num_dims: usize, shape_element_type: u32, shape_layout: Raw, memory: Raw =>
        buffer: Raw; payload: Raw, num_payload: usize
    }
    TransferManagerTransferLiteral, 119, 80 {
        transfer_manager: Raw, buffer_index: i32, data: Raw, shape_dims: Raw, shape_num_dims:
        usize, shape_element_type: u32, shape_layout: Raw => done_with_h2d_transfer: Raw
    }
    BufferCopyRawToHostFuture, 120, 64 {
        buffer: Raw, offset: i64, transfer_size: i64 => event: Raw, callback_data: Raw,
        future_ready_callback: Raw
    }
    DevicePoisonExecution, 121, 72 {
        device: Raw, launch_id: i32, error_code: u32, error_message: Raw, error_message_size: usize
        => poisoned: u8; payload: Raw, num_payload: usize
    }
    DeviceCreateAsyncTrackingEvent, 122, 48 {
        device: Raw, description: Raw, description_size: usize => event: Raw
    }
    AsyncTrackingEventDestroy, 123, 24 { event: Raw }
    ExecutableGetCompileOptions, 124, 56 {
        executable: Raw => serialized_bytes: Raw, serialized_bytes_size: usize,
        serialized_compile_options: Raw, serialized_compile_options_deleter: Raw
    }
    BufferDonateWithControlDependency, 125, 48 {
        buffer: Raw => callback_data: Raw, dependency_ready_callback: Raw, out_buffer: Raw
    }
    EventCreate, 126, 24 { => event: Raw }
    EventSet, 127, 48 { event: Raw, error_code: u32, error_message: Raw, error_message_size: usize }
    DeviceGetAttributes, 128, 56 {
        device: Raw => attributes: Raw, num_attributes: usize, device_attributes: Raw,
        attributes_deleter: Raw
    }
    ClientLoad, 129, 56 {
        client: Raw, executable: Raw, compile_options: Raw, compile_options_size: usize =>
        loaded_executable: Raw
    }
    LoadedExecutableAddressableDeviceLogicalIds, 130, 40 {
        executable: Raw => addressable_device_logical_ids: Raw, num_addressable_device_logical_ids:
        usize
    }
    BufferBitcast, 131, 64 {
        buffer: Raw, element_type: u32, dims: Raw, num_dims: usize, device_layout: Raw =>
        out_buffer: Raw
    }
    ErrorForEachPayload, 132, 40 { error: Raw, visitor: Raw, user_arg: Raw }
    TopologyDescriptionFingerprint, 133, 32 { topology: Raw => fingerprint: usize }
    ExecutableParameterMemoryKinds, 134, 48 {
        executable: Raw => num_parameters: usize, memory_kinds: Raw, memory_kind_sizes: Raw
    }
    DeviceClearMemoryStats, 135, 24 { device: Raw }
    TopologyDescriptionMakeCanonicalShapeForMemorySpace, 136, 88 {
        topology: Raw, memory_space_kind_id: i32, dims: Raw, num_dims: usize, element_type: u32,
        layout: Raw => serialized_shape: Raw, serialized_shape_size: usize,
        serialized_shape_deleter: Raw
    }
    TopologyDescriptionGetMemorySpaceKindIds, 137, 40 {
        topology: Raw => memory_space_kind_ids: Raw, num_memory_space_kind_ids: usize
    }
}
