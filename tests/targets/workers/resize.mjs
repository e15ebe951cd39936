import busy from './busy.js';
busy(function resized() {});
